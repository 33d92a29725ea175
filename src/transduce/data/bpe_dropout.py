"""BPE-dropout (Provilkov et al., 2020): another segmentation of the same text each time it is read.

The ``tokenizers`` library has it too, but draws from a generator that can be neither seeded nor saved.
"""

import json
import random

from tokenizers import Tokenizer as Backend


class BpeDropout:
    """A BPE tokenizer in which each merge is skipped with some probability."""

    def __init__(self, backend: Backend) -> None:
        model = json.loads(backend.to_str())["model"]
        self._ids: dict[str, int] = model["vocab"]
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._words = backend.pre_tokenizer

    @property
    def has_merges(self) -> bool:
        """Without any, there is nothing to drop."""
        return bool(self._ranks)

    def encode(self, text: str, p: float, generator: random.Random) -> list[int]:
        """Ids of a normalised text; with p = 0, those of the tokenizer itself."""
        words = self._words.pre_tokenize_str(text) if self._words else [(text, (0, len(text)))]
        return [self._ids[piece] for word, _ in words for piece in self._segment(word, p, generator)]

    def _segment(self, word: str, p: float, generator: random.Random) -> list[str]:
        """Merge the best-ranked pair that is not dropped, until none is left."""
        pieces = list(word)
        while len(pieces) > 1:
            candidates = [
                (rank, index)
                for index in range(len(pieces) - 1)
                if (rank := self._ranks.get((pieces[index], pieces[index + 1]))) is not None
                and (p == 0 or generator.random() >= p)
            ]
            if not candidates:
                break
            _, index = min(candidates)
            pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]
        return pieces
