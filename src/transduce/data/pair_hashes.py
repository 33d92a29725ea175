"""Hashes of pairs: repeated pairs, and pairs that two corpora share, in eight bytes per pair and side."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Overlap(NamedTuple):
    """Which pairs of a chunk are known from another corpus."""

    pairs: Flags
    sources: Flags  # known with another target


class PairHashes:
    """The pairs of a corpus, as hashes of their normalized texts."""

    def __init__(self) -> None:
        self._pairs: list[Hashes] = []
        self._sources: list[Hashes] = []
        self._places: list[tuple[str, npt.NDArray[np.int64]]] = []  # the file and the lines of each chunk

    def add(self, sources: list[str], targets: list[str], lines: Sequence[int], where: str) -> None:
        """Add the pairs of a chunk."""
        self._pairs.append(_pair_hashes(sources, targets))
        self._sources.append(_hashes(sources))
        self._places.append((where, np.array(lines)))

    def repeated(self) -> Iterator[tuple[str, int]]:
        """Yield the file and line of every pair that occurred before."""
        ordered = _sorted(self._pairs)
        several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        seen: set[int] = set()
        for hashes, (where, lines) in zip(self._pairs, self._places, strict=True):
            for offset in np.flatnonzero(_is_among(hashes, several)).tolist():
                if int(hashes[offset]) in seen:
                    yield where, int(lines[offset])
                seen.add(int(hashes[offset]))

    def sort(self) -> "SortedHashes":
        """Return the hashes in a form in which other pairs can be looked up."""
        return SortedHashes(_sorted(self._pairs), _sorted(self._sources))


class SortedHashes(NamedTuple):
    """The hashes of a corpus in ascending order."""

    pairs: Hashes
    sources: Hashes

    def overlap(self, sources: list[str], targets: list[str]) -> Overlap:
        """Return which of these pairs are in the corpus."""
        known = _is_among(_pair_hashes(sources, targets), self.pairs)
        return Overlap(known, ~known & _is_among(_hashes(sources), self.sources))


def _hashes(texts: list[str]) -> Hashes:
    return np.fromiter(map(hash, texts), np.int64, len(texts))


def _pair_hashes(sources: list[str], targets: list[str]) -> Hashes:
    return np.fromiter(map(hash, zip(sources, targets, strict=True)), np.int64, len(sources))


def _sorted(hashes: list[Hashes]) -> Hashes:
    return np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.int64)


def _is_among(hashes: Hashes, ordered: Hashes) -> Flags:
    places = np.searchsorted(ordered, hashes)
    found = np.zeros(len(hashes), bool)
    inside = places < len(ordered)
    found[inside] = ordered[places[inside]] == hashes[inside]
    return found
