"""Checks of a parallel corpus (``transduce check``): which problems it has, and in which lines."""

import re
from itertools import chain

import numpy as np
import numpy.typing as npt

from transduce.data.characters import Characters
from transduce.data.chunks import Chunk, CleanChunk, usable
from transduce.data.corpus import AlignedFiles, Corpus, Part
from transduce.data.findings import LONG, Report, all_kinds
from transduce.data.misalignment import Misalignment, find_misaligned
from transduce.data.normalization import DEFAULT, Normalization, normalize_text
from transduce.data.pair_hashes import PairHashes, SortedHashes
from transduce.data.text_files import has_byte_order_mark
from transduce.data.unequal_files import first_difference

RATIO = 4.0  # between the lengths of both sides, relative to the usual ratio in the corpus

_RECENT_RATIOS = 100_000
_CHARACTERS = {
    "nul": ("\0",),
    "line_breaks": ("\r", "\u2028", "\u2029", "\u0085"),
}
_NO_BREAK_SPACES = ("\u00a0", "\u2007", "\u202f")


class Doctor:
    """Checks a corpus chunk by chunk; texts are compared in this normalization form."""

    def __init__(self, normalize: Normalization = DEFAULT) -> None:
        self.pairs = 0
        self.found = all_kinds()
        self._normalize = normalize
        self._characters = Characters(), Characters()  # of sources and of targets
        self._unseen: dict[str, float] = {}
        self._hashes = PairHashes()
        self._ratios: npt.NDArray[np.float64] = np.empty(0)  # of recent lengths, as logarithms

    def report(self) -> Report:
        """Return what was found so far."""
        found = {name: finding for name, finding in self.found.items() if finding.count}
        return Report(self.pairs, found, self._unseen)

    def examine(self, train: Corpus, others: dict[str, Corpus]) -> Report:
        """Examine training data, and validation and test data (``others``, by name) beside it."""
        for corpus in (train, *others.values()):
            for part in corpus.parts:
                self._examine_files(part)
        if not self.found["unequal"].count:
            for chunk in train.chunks():
                self.examine_chunk(chunk)
            for where, line in self._hashes.repeated():
                self.found["repeated"].add(where, line, "")
            known = self._hashes.sort()
            for name, corpus in others.items():
                self._compare(name, corpus, known)
        return self.report()

    def examine_chunk(self, chunk: Chunk) -> CleanChunk:
        """Examine training pairs, and return the usable ones."""
        self.pairs += len(chunk.sources)
        kept = usable(chunk)
        if len(kept.lines) < len(chunk.sources):
            self._add_dropped(chunk, kept)
        self._add_ignored_columns(chunk, chunk.where)
        if kept.sources:
            normalized = self._normalized(kept)
            self._examine_characters(kept, chunk)
            self._examine_spaces(normalized, chunk)
            self._examine_pairs(normalized, chunk.where)
            self._compare_lengths(kept, chunk)
            self._examine_alignment(normalized, chunk.where)
            self._hashes.add(*normalized[:3], chunk.where)
            for characters, texts in zip(self._characters, normalized[:2], strict=True):
                characters.add(texts)
        return kept

    def _normalized(self, kept: CleanChunk) -> CleanChunk:
        sources, targets = ([normalize_text(text, self._normalize) for text in side] for side in kept[:2])
        return CleanChunk(sources, targets, kept.lines)

    def _examine_files(self, part: Part) -> None:
        if isinstance(part, AlignedFiles) and (difference := first_difference(part)):
            self.found["unequal"].add(difference.where, difference.line, difference.description)
        for path in part.paths:
            if has_byte_order_mark(path):
                self.found["byte_order_mark"].add(str(path), 1, "")

    def _add_dropped(self, chunk: Chunk, kept: CleanChunk) -> None:
        usable_lines = set(kept.lines)
        for source, target, line in zip(chunk.sources, chunk.targets, chunk.lines, strict=True):
            if line in usable_lines:
                continue
            try:
                self.found["empty"].add(chunk.where, line, source.decode().strip() + target.decode().strip())
            except UnicodeDecodeError:
                self._add_not_utf8(source, target, line, chunk)

    def _add_not_utf8(self, source: bytes, target: bytes, line: int, chunk: Chunk) -> None:
        """Add a pair once, even if both sides are not UTF-8; bytes count from the start of the line."""
        before_target = len(source) + 1 if chunk.where == chunk.where_target else 0
        for text, where, begin in ((source, chunk.where, 1), (target, chunk.where_target, 1 + before_target)):
            try:
                text.decode()
            except UnicodeDecodeError as error:
                shown = text[max(0, error.start - 20) :].decode(errors="backslashreplace")
                self.found["not_utf8"].add(where, line, f"byte {begin + error.start}: {shown}")
                return

    def _add_ignored_columns(self, chunk: Chunk, where: str) -> None:
        for line in chunk.ignored_columns:
            self.found["ignored_columns"].add(where, line, "")

    def _examine_characters(self, kept: CleanChunk, chunk: Chunk) -> None:
        everything = "\n".join(chain(kept.sources, kept.targets))
        for name, characters in _CHARACTERS.items():
            # Most chunks contain none of them, which is quick to see.
            if present := [character for character in characters if character in everything]:
                self._add_lines_with(name, present, kept, chunk)

    def _examine_spaces(self, normalized: CleanChunk, chunk: Chunk) -> None:
        everything = "\n".join(chain(normalized.sources, normalized.targets))
        if present := [character for character in _NO_BREAK_SPACES if character in everything]:
            self._add_lines_with("spaces", present, normalized, chunk)

    def _add_lines_with(self, name: str, characters: list[str], kept: CleanChunk, chunk: Chunk) -> None:
        """Add every pair with one of these characters once, with the side that has it."""
        pattern = re.compile("[" + "".join(characters) + "]")
        for source, target, line in zip(*kept[:3], strict=True):
            if pattern.search(source):
                self.found[name].add(chunk.where, line, source)
            elif pattern.search(target):
                self.found[name].add(chunk.where_target, line, target)

    def _examine_pairs(self, normalized: CleanChunk, where: str) -> None:
        for source, target, line in zip(*normalized[:3], strict=True):
            if source == target:
                self.found["copies"].add(where, line, source)

    def _examine_alignment(self, normalized: CleanChunk, where: str) -> None:
        for region in find_misaligned(normalized.sources, normalized.targets):
            first, last = normalized.lines[region.begin], normalized.lines[region.end - 1]
            text = _describe(region, last)
            self.found["misaligned"].add(where, first, text, region.end - region.begin)

    def _compare_lengths(self, kept: CleanChunk, chunk: Chunk) -> None:
        source, target = (np.array([len(text) for text in side]) for side in kept[:2])
        ratios = np.log(source / target)
        self._ratios = np.concatenate((self._ratios, ratios))[-_RECENT_RATIOS:]
        uneven = np.abs(ratios - np.median(self._ratios)) > np.log(RATIO)
        for offset in np.flatnonzero(uneven & (np.maximum(source, target) > 20)).tolist():
            self.found["uneven"].add(chunk.where, kept.lines[offset], kept.sources[offset])
        for offset in np.flatnonzero(np.maximum(source, target) > LONG).tolist():
            in_source = source[offset] >= target[offset]
            where, texts = (chunk.where, kept.sources) if in_source else (chunk.where_target, kept.targets)
            self.found["long"].add(where, kept.lines[offset], texts[offset])

    def _compare(self, name: str, corpus: Corpus, known: SortedHashes) -> None:
        """Look for pairs of validation or test data that training has, and for characters it lacks."""
        total = unseen = 0
        for chunk in corpus.chunks():
            kept, where = self._normalized(usable(chunk)), f"{name} {chunk.where}"
            for line in sorted(set(chunk.lines) - set(kept.lines)):
                self.found["unusable"].add(where, line, "")
            self._add_ignored_columns(chunk, where)
            self._examine_alignment(kept, where)
            overlap = known.overlap(kept.sources, kept.targets)
            for finding, flags in (("leaked", overlap.pairs), ("leaked_sources", overlap.sources)):
                for offset in np.flatnonzero(flags).tolist():
                    self.found[finding].add(where, kept.lines[offset], kept.sources[offset])
            total += sum(map(len, chain(kept.sources, kept.targets)))
            unseen += self._add_unseen(kept, where, f"{name} {chunk.where_target}")
        self._unseen[name] = unseen / total if total else 0.0

    def _add_unseen(self, kept: CleanChunk, where: str, where_target: str) -> int:
        """Add the lines with characters that training lacks; return how many characters these are."""
        unseen = [
            (offset, path, new)
            for characters, texts, path in zip(self._characters, kept[:2], (where, where_target), strict=True)
            for offset, new in characters.unseen(texts).items()
        ]
        for offset, path, new in sorted(unseen, key=lambda item: item[0]):
            self.found["unseen"].add(path, kept.lines[offset], " ".join(sorted(set(new))))
        return sum(len(new) for _, _, new in unseen)


def _describe(region: Misalignment, last: int) -> str:
    lines = f"up to line {last:,}, "
    if region.shift is None:
        return (
            f"{lines}the pairs are no more alike than random ones "
            f"({region.evidence:.1f} standard deviations from chance; aligned text has 10 or more)"
        )
    direction = "+" if region.shift > 0 else "-"
    return (
        f"{lines}source line n matches target line n {direction} {abs(region.shift):,} "
        f"({region.shift_evidence:.0f} standard deviations from chance; line n itself: {region.evidence:.1f})"
    )
