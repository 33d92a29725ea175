"""BPE-dropout (Provilkov et al., 2020): a new segmentation of the same text each time it is read.

The ``tokenizers`` library has it as well, but with a random generator that can be neither seeded nor saved.
"""

import json
import random
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise, repeat

from tokenizers import Tokenizer as Backend

Pair = tuple[int, int]  # the rank of a merge, and the index of its left piece
_CACHED_WORDS = 50_000


class BpeDropout:
    """A BPE tokenizer in which each merge is skipped with some probability."""

    def __init__(self, backend: Backend) -> None:
        model = json.loads(backend.to_str())["model"]
        self._ids: dict[str, int] = model["vocab"]
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._words = backend.pre_tokenizer
        self._whole: dict[str, list[int]] = {}  # words without dropout

    @property
    def has_merges(self) -> bool:
        """Whether the tokenizer has merges that can be dropped."""
        return bool(self._ranks)

    def encode(self, text: str, p: float, generator: random.Random) -> list[int]:
        """Return the ids of a normalized text; with p = 0, those of the tokenizer itself."""
        words = self._words.pre_tokenize_str(text) if self._words else [(text, (0, len(text)))]
        return [token for word, _ in words for token in self._encode_word(word, p, generator)]

    def _encode_word(self, word: str, p: float, generator: random.Random) -> list[int]:
        whole = self._whole.get(word)
        if whole is None:
            if len(self._whole) >= _CACHED_WORDS:
                self._whole.clear()
            whole = self._whole[word] = self._segment(word, repeat(True))
        merges = len(word) - len(whole)
        kept = [generator.random() >= p for _ in range(merges)] if p else []
        if all(kept):  # no merge was dropped
            return whole
        return self._segment(word, chain(kept, _kept(p, generator)))

    def _segment(self, word: str, kept: Iterator[bool]) -> list[int]:
        """Merge the best-ranked pair that is kept, until no pair is left.

        Every step decides again for every pair, as in the paper (Algorithm 1). Pairs that rank below the
        first one kept have no influence, so that no random numbers are needed for them.
        """
        pieces = _Pieces(word, self._ranks)
        merged = True
        while merged:
            merged = False
            dropped: list[Pair] = []
            while pieces.pairs and not merged:
                pair = heappop(pieces.pairs)
                if pieces.holds(pair):
                    merged = next(kept)
                    if merged:
                        pieces.merge(pair)
                    else:
                        dropped.append(pair)
            for pair in dropped:
                heappush(pieces.pairs, pair)
        return [self._ids[piece] for piece in pieces.pieces if piece]


def _kept(p: float, generator: random.Random) -> Iterator[bool]:
    """Yield forever whether a merge is kept, which has probability 1 − p."""
    while True:
        yield generator.random() >= p


class _Pieces:
    """The pieces of a word, and a heap of the pairs that can be merged: by rank, then from the left."""

    def __init__(self, word: str, ranks: dict[tuple[str, str], int]) -> None:
        self.pieces = list(word)  # empty after a piece was merged into its neighbor
        self._ranks = ranks
        self._before, self._after = list(range(-1, len(word) - 1)), list(range(1, len(word) + 1))
        ranked = ((ranks.get(pair), left) for left, pair in enumerate(pairwise(word)))
        self.pairs = [(rank, left) for rank, left in ranked if rank is not None]
        heapify(self.pairs)

    def holds(self, pair: Pair) -> bool:
        """Return whether this pair is unchanged since it was put into the heap."""
        rank, left = pair
        return self._rank(left) == rank

    def merge(self, pair: Pair) -> None:
        """Merge two pieces into one."""
        _, left = pair
        right = self._after[left]
        self.pieces[left] += self.pieces[right]
        self.pieces[right] = ""
        self._after[left] = after = self._after[right]
        if after < len(self.pieces):
            self._before[after] = left
        for place in (self._before[left], left):
            if place >= 0 and (rank := self._rank(place)) is not None:
                heappush(self.pairs, (rank, place))

    def _rank(self, left: int) -> int | None:
        right = self._after[left]
        return self._ranks.get((self.pieces[left], self.pieces[right])) if right < len(self.pieces) else None
