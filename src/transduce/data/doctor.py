"""The corpus doctor: what is wrong with a parallel corpus, where, and what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transduce.data.alignment import parting_line
from transduce.data.corpus import AlignedFiles, Chunk, Corpus

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

    @property
    def dropped(self) -> int:
        """How many pairs training leaves out."""
        return sum(finding.count for finding in self.findings if finding.dropped)


class CleanChunk(NamedTuple):
    """Pairs that can be used, and the line each came from."""

    sources: list[str]
    targets: list[str]
    lines: list[int]


class Doctor:
    """Looks at a corpus chunk by chunk, and lets the usable pairs through."""

    def __init__(self) -> None:
        self.pairs = 0
        self.unequal = Finding(
            "unequal numbers of lines", "remove the surplus line, or restore the missing one", fatal=True
        )
        self.broken = Finding("broken UTF-8", "convert the file to UTF-8, with iconv for one", dropped=True)
        self.empty = Finding("empty on one side or both", "remove these lines from both files", dropped=True)
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
        self.unseen = Finding(
            "validation or test lines with characters never seen in training",
            "train on more text, or on bytes",
        )
        self._characters: set[str] = set()
        self._hashes: list[Hashes] = []
        self._ratios: npt.NDArray[np.float64] = np.empty(0)  # of lengths, lately
        self._places: list[tuple[str, npt.NDArray[np.int64]]] = []  # where each hash's pair came from

    def report(self) -> Report:
        """What was found so far; kinds of trouble that were not met are left out."""
        findings = [value for value in vars(self).values() if isinstance(value, Finding) and value.count]
        return Report(self.pairs, findings)

    def examine(self, train: Corpus, others: dict[str, Corpus]) -> Report:
        """Look at training data, and at validation and test data beside it."""
        for corpus in (train, *others.values()):
            for part in corpus.parts:
                self._compare_line_counts(part)
        if not self.unequal.count:
            for chunk in train.chunks():
                self.treat(chunk)
            seen = self._find_repeated()
            for name, corpus in others.items():
                self._compare(name, corpus.chunks(), seen)
        return self.report()

    def treat(self, chunk: Chunk) -> CleanChunk:
        """Note what is wrong with these pairs; gives those that can be used."""
        self.pairs += len(chunk.sources)
        sources, targets = _decode(chunk.sources), _decode(chunk.targets)
        kept = CleanChunk([], [], [])
        for line, source, target in zip(range(chunk.first_line, 1 << 62), sources, targets, strict=False):
            if source is None or target is None:
                self._note_broken(chunk, line)
                continue
            if not source.strip() or not target.strip():
                self.empty.add(chunk.where, line, source.strip() or target.strip())
                continue
            self._look(source, target, chunk.where, line)
            kept.sources.append(source)
            kept.targets.append(target)
            kept.lines.append(line)
        self._note(kept, chunk.where)
        return kept

    def _find_repeated(self) -> Hashes:
        """Note pairs that stand in several places; gives the hashes of all pairs."""
        hashes = np.concatenate(self._hashes) if self._hashes else np.empty(0, np.int64)
        seen, first = np.unique(hashes, return_index=True)
        again = np.setdiff1d(np.arange(len(hashes)), first)
        starts = np.cumsum([0, *(len(lines) for _, lines in self._places)])
        for index in again.tolist():
            chunk = int(np.searchsorted(starts, index, side="right")) - 1
            where, lines = self._places[chunk]
            self.repeated.add(where, int(lines[index - starts[chunk]]), "")
        return seen

    def _compare_line_counts(self, part: object) -> None:
        if isinstance(part, AlignedFiles) and (parting := parting_line(part)):
            self.unequal.add(parting.where, parting.line, parting.description)

    def _note_broken(self, chunk: Chunk, line: int) -> None:
        """Once a pair, however many of its sides are broken."""
        offset = line - chunk.first_line
        for text, where in (
            (chunk.sources[offset], chunk.where),
            (chunk.targets[offset], chunk.where_target),
        ):
            try:
                text.decode()
            except UnicodeDecodeError as error:
                shown = text[max(0, error.start - 20) :].decode(errors="backslashreplace")
                self.broken.add(where, line, f"byte {error.start + 1}: {shown}")
                return

    def _look(self, source: str, target: str, where: str, line: int) -> None:
        both = f"{source}\n{target}"
        if "\0" in both:
            self.nul.add(where, line, source)
        if any(character in both for character in _LINE_BREAKS):
            self.breaks.add(where, line, source)
        if len(source) > LONG or len(target) > LONG:
            self.long.add(where, line, source)
        if source == target:
            self.copies.add(where, line, source)

    def _note(self, kept: CleanChunk, where: str) -> None:
        """What concerns many lines: their lengths, their hashes, their characters."""
        if not kept.sources:
            return
        self._hashes.append(_hashes(kept.sources, kept.targets))
        self._places.append((where, np.array(kept.lines)))
        self._characters.update(*kept.sources)
        source, target = (np.array([len(text) for text in side]) for side in (kept.sources, kept.targets))
        ratios = np.log(source / target)
        self._ratios = np.concatenate((self._ratios, ratios))[-_REMEMBERED:]
        uneven = np.abs(ratios - np.median(self._ratios)) > np.log(RATIO)
        for offset in np.flatnonzero(uneven & (np.maximum(source, target) > 20)).tolist():
            self.uneven.add(where, kept.lines[offset], kept.sources[offset])

    def _compare(self, name: str, chunks: Iterator[Chunk], seen: Hashes) -> None:
        for chunk in chunks:
            sources, targets = _readable(chunk.sources), _readable(chunk.targets)
            for offset in np.flatnonzero(np.isin(_hashes(sources, targets), seen)).tolist():
                self.leaked.add(f"{name} {chunk.where}", chunk.first_line + offset, sources[offset])
            for offset, text in enumerate(sources):
                if unseen := set(text) - self._characters:
                    self.unseen.add(
                        f"{name} {chunk.where}", chunk.first_line + offset, " ".join(sorted(unseen))
                    )


def _hashes(sources: list[str], targets: list[str]) -> Hashes:
    return np.fromiter((hash(pair) for pair in zip(sources, targets, strict=True)), np.int64, len(sources))


def _decode(lines: list[bytes]) -> list[str | None]:
    """All at once if that can be; ``None`` for broken ones."""
    try:
        texts = b"\n".join(lines).decode().split("\n")
        if len(texts) == len(lines):  # JSON may hold line feeds
            return [*texts]
    except UnicodeDecodeError:
        pass
    return [_decode_one(line) for line in lines]


def _decode_one(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _readable(lines: list[bytes]) -> list[str]:
    return [line.decode(errors="replace") for line in lines]
