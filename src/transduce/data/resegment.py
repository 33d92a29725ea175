"""BPE-dropout on prepared pairs: every epoch reads the same text in another segmentation."""

import random

import numpy as np

from transduce.data.batching import Row
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import TokenizerPair


class Resegmentation:
    """Random segmentations of prepared pairs, determined by seed, epoch, side and index."""

    def __init__(self, pairs: Pairs, tokenizer: TokenizerPair, p: float, seed: int) -> None:
        self.p, self.seed = p, seed
        self._sides = {
            name: (rows, side, side.dropout(), frame)
            for name, rows, side, frame in (
                ("source", pairs.source, tokenizer.source, tokenizer.source_frame),
                ("target", pairs.target, tokenizer.target, tokenizer.target_frame),
            )
        }

    def read(self, name: str, index: int, epoch: int, limit: int | None = None) -> Row:
        """Return the source or target of a pair, with the tokens around it: its languages and ``eos``.

        If it has more than ``limit`` tokens in its new segmentation, the original one is returned.
        """
        rows, side, dropout, (before, after) = self._sides[name]
        generator = random.Random(f"{self.seed} {epoch} {name} {index}")
        row = rows[index]
        end = len(row) - after
        ids = dropout.encode(side.decode(row[before:end].tolist()), self.p, generator)
        if limit is not None and before + len(ids) + after > limit:
            return row
        return np.array([*row[:before], *ids, *row[end:]])
