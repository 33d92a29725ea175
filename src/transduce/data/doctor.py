"""The corpus doctor: what is wrong with a parallel corpus, where, and what to do about it."""

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transduce.data.characters import Characters
from transduce.data.chunks import Chunk
from transduce.data.clean import CleanChunk, usable
from transduce.data.corpus import AlignedFiles, Corpus, Part
from transduce.data.normalization import normalize_text
from transduce.data.text_files import has_byte_order_mark
from transduce.data.unequal_files import parting_line

LONG = 1000  # characters; sentences are shorter
RATIO = 4.0  # times as long as the pairs of this corpus usually are
EXAMPLES = 3

Hashes = npt.NDArray[np.int64]
_REMEMBERED = 100_000
_LINE_BREAKS = ("\r", "\u2028", "\u2029", "\u0085")


class Example(NamedTuple):
    """One place where something was found."""

    where: str
    line: int
    text: str


@dataclass
class Finding:
    """One kind of trouble."""

    problem: str
    remedy: str
    dropped: bool = False  # pairs like this are left out of training
    fatal: bool = False  # there is no training on this
    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, where: str, line: int, text: str) -> None:
        """Count one more, and keep the first few to show."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(Example(where, line, text if len(text) <= 100 else f"{text[:97]}..."))


@dataclass(frozen=True)
class Report:
    """What the doctor found."""

    pairs: int
    findings: list[Finding]
    # By name, what share of the characters of validation and test data training never saw.
    unseen_characters: dict[str, float] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """How many pairs training leaves out."""
        return sum(finding.count for finding in self.findings if finding.dropped)


class Doctor:
    """Looks at a corpus chunk by chunk, and lets the usable pairs through."""

    def __init__(self) -> None:
        self.pairs = 0
        self.unequal = Finding(
            "unequal numbers of lines", "remove the surplus line, or restore the missing one", fatal=True
        )
        self.marks = Finding(
            "byte order mark before the text",
            "nothing needs doing: it is not taken for text; other tools may want the file without it",
        )
        self.broken = Finding("broken UTF-8", "convert the file to UTF-8, with iconv for one", dropped=True)
        self.empty = Finding("empty on one side or both", "remove these lines on both sides", dropped=True)
        self.nul = Finding("NUL characters", "remove them: they often come from UTF-16 text")
        self.breaks = Finding(
            "CR, U+2028, U+2029 or U+0085 inside a line",
            "replace them by spaces: other tools split lines there",
        )
        self.long = Finding(f"longer than {LONG:,} characters", "split them into sentences")
        self.uneven = Finding("one side far longer than usual", "check whether these lines belong together")
        self.copies = Finding("target is a copy of its source", "remove them, or the model learns to copy")
        self.repeated = Finding("repeated pairs", "keep one of each, or they count several times")
        self.leaked = Finding(
            "validation or test pairs among the training pairs", "remove them from training"
        )
        self.leaked_sources = Finding(
            "validation or test sources that training knows with another target",
            "remove them from training, or accept that these are easier",
        )
        self.unfit = Finding(
            "validation or test lines that are empty or broken UTF-8", "mend them: they are left out"
        )
        self.unseen = Finding(
            "validation or test lines with characters never seen in training",
            "train on more text, or on bytes",
        )
        self._characters = Characters(), Characters()  # of sources, of targets
        self._unseen: dict[str, float] = {}
        self._hashes: list[Hashes] = []
        self._source_hashes: list[Hashes] = []
        self._places: list[tuple[str, npt.NDArray[np.int64]]] = []  # where each hash's pair came from
        self._ratios: npt.NDArray[np.float64] = np.empty(0)  # of lengths, lately

    def report(self) -> Report:
        """What was found so far; kinds of trouble that were not met are left out."""
        findings = [value for value in vars(self).values() if isinstance(value, Finding) and value.count]
        return Report(self.pairs, findings, self._unseen)

    def examine(self, train: Corpus, others: dict[str, Corpus]) -> Report:
        """Look at training data, and at validation and test data beside it."""
        for corpus in (train, *others.values()):
            for part in corpus.parts:
                self._look_at_files(part)
        if not self.unequal.count:
            for chunk in train.chunks():
                self.treat(chunk)
            seen, sources = self._find_repeated(), _in_order(self._source_hashes)
            for name, corpus in others.items():
                self._compare(name, corpus, seen, sources)
        return self.report()

    def treat(self, chunk: Chunk) -> CleanChunk:
        """Note what is wrong with these pairs; gives those that can be used."""
        self.pairs += len(chunk.sources)
        kept = usable(chunk)
        if len(kept.lines) < len(chunk.sources):
            self._note_dropped(chunk, kept)
        if kept.sources:
            self._look(kept, chunk.where)
            self._compare_lengths(kept, chunk.where)
            self._hashes.append(_pair_hashes(kept))
            self._source_hashes.append(_source_hashes(kept))
            self._places.append((chunk.where, np.array(kept.lines)))
            for characters, texts in zip(self._characters, kept[:2], strict=True):
                characters.add(texts)
        return kept

    def _look_at_files(self, part: Part) -> None:
        if isinstance(part, AlignedFiles) and (parting := parting_line(part)):
            self.unequal.add(parting.where, parting.line, parting.description)
        for path in part.paths:
            if has_byte_order_mark(path):
                self.marks.add(str(path), 1, "")

    def _find_repeated(self) -> Hashes:
        """Note pairs that stand in several places; gives the hashes of all pairs, sorted."""
        seen = _in_order(self._hashes)
        several = np.unique(seen[1:][seen[1:] == seen[:-1]])
        met: set[int] = set()
        for hashes, (where, lines) in zip(self._hashes, self._places, strict=True):
            for offset in np.flatnonzero(_among(hashes, several)).tolist():
                if int(hashes[offset]) in met:
                    self.repeated.add(where, int(lines[offset]), "")
                met.add(int(hashes[offset]))
        return seen

    def _note_dropped(self, chunk: Chunk, kept: CleanChunk) -> None:
        for line in _missing_lines(chunk, kept):
            offset = chunk.lines.index(line)
            try:
                text = (chunk.sources[offset].decode().strip(), chunk.targets[offset].decode().strip())
                self.empty.add(chunk.where, line, "".join(text))
            except UnicodeDecodeError:
                self._note_broken(chunk, line)

    def _note_broken(self, chunk: Chunk, line: int) -> None:
        """Once a pair, however many of its sides are broken. Bytes are counted from the start of the line."""
        source, target = (side[chunk.lines.index(line)] for side in (chunk.sources, chunk.targets))
        before = len(source) + 1 if chunk.where == chunk.where_target else 0  # and a tab, in one line
        for text, where, begin in ((source, chunk.where, 1), (target, chunk.where_target, 1 + before)):
            try:
                text.decode()
            except UnicodeDecodeError as error:
                shown = text[max(0, error.start - 20) :].decode(errors="backslashreplace")
                self.broken.add(where, line, f"byte {begin + error.start}: {shown}")
                return

    def _look(self, kept: CleanChunk, where: str) -> None:
        """What shows in a pair by itself."""
        everything = "\n".join(chain(kept.sources, kept.targets))
        for finding, characters in ((self.nul, ("\0",)), (self.breaks, _LINE_BREAKS)):
            # Most chunks have none, and are looked at as a whole.
            if present := [character for character in characters if character in everything]:
                for source, target, line in zip(*kept, strict=True):
                    if any(character in source or character in target for character in present):
                        finding.add(where, line, source)
        for source, target, line in zip(*kept, strict=True):
            if source == target:
                self.copies.add(where, line, source)

    def _compare_lengths(self, kept: CleanChunk, where: str) -> None:
        source, target = (np.array([len(text) for text in side]) for side in kept[:2])
        longer = np.maximum(source, target)
        ratios = np.log(source / target)
        self._ratios = np.concatenate((self._ratios, ratios))[-_REMEMBERED:]
        uneven = np.abs(ratios - np.median(self._ratios)) > np.log(RATIO)
        for finding, found in ((self.long, longer > LONG), (self.uneven, uneven & (longer > 20))):
            for offset in np.flatnonzero(found).tolist():
                finding.add(where, kept.lines[offset], kept.sources[offset])

    def _compare(self, name: str, corpus: Corpus, seen: Hashes, sources: Hashes) -> None:
        """Look for pairs of another corpus that training knows, and for characters it does not know."""
        total = unseen = 0
        for chunk in corpus.chunks():
            kept, where = usable(chunk), f"{name} {chunk.where}"
            for line in _missing_lines(chunk, kept):
                self.unfit.add(where, line, "")
            known = _among(_pair_hashes(kept), seen)
            for finding, leaks in (
                (self.leaked, known),
                (self.leaked_sources, ~known & _among(_source_hashes(kept), sources)),
            ):
                for offset in np.flatnonzero(leaks).tolist():
                    finding.add(where, kept.lines[offset], kept.sources[offset])
            new: dict[int, str] = {}
            for characters, texts in zip(self._characters, kept[:2], strict=True):
                total += sum(map(len, texts))
                for offset, found in characters.unseen(texts).items():
                    unseen += len(found)
                    new[offset] = new.get(offset, "") + found
            for offset, found in sorted(new.items()):
                self.unseen.add(where, kept.lines[offset], " ".join(sorted(set(found))))
        self._unseen[name] = unseen / total if total else 0.0


def _missing_lines(chunk: Chunk, kept: CleanChunk) -> list[int]:
    """Which lines of a chunk are not among the usable ones."""
    return sorted(set(chunk.lines) - set(kept.lines))


def _in_order(hashes: list[Hashes]) -> Hashes:
    return np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.int64)


def _source_hashes(kept: CleanChunk) -> Hashes:
    return np.fromiter(map(hash, map(normalize_text, kept.sources)), np.int64, len(kept.sources))


def _pair_hashes(kept: CleanChunk) -> Hashes:
    """Of each pair, as tokenizers see it."""
    pairs = zip(map(normalize_text, kept.sources), map(normalize_text, kept.targets), strict=True)
    return np.fromiter(map(hash, pairs), np.int64, len(kept.sources))


def _among(hashes: Hashes, in_order: Hashes) -> npt.NDArray[np.bool_]:
    places = np.searchsorted(in_order, hashes)
    found = np.zeros(len(hashes), bool)
    inside = places < len(in_order)
    found[inside] = in_order[places[inside]] == hashes[inside]
    return found
