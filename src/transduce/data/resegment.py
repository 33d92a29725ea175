"""BPE-dropout on prepared pairs: every epoch reads the same text in another segmentation."""

import random

import numpy as np

from transduce.data.batching import Row
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import SideTokenizer, TokenizerPair


class Resegmentation:
    """Random segmentations of prepared pairs, determined by seed, epoch, side and index."""

    def __init__(self, pairs: Pairs, tokenizer: TokenizerPair, p: float, seed: int) -> None:
        self.p, self.seed, self.eos = p, seed, tokenizer.vocabulary.eos
        self._sides = {
            name: (rows, side, side.dropout())
            for name, rows, side in (
                ("source", pairs.source, tokenizer.source),
                ("target", pairs.target, tokenizer.target),
            )
        }

    def read(self, name: str, index: int, epoch: int, limit: int | None = None) -> Row:
        """Return the source or target of a pair, with ``eos``.

        If it has more than ``limit`` tokens in its new segmentation, the original one is returned.
        """
        rows, side, dropout = self._sides[name]
        generator = random.Random(f"{self.seed} {epoch} {name} {index}")
        ids = dropout.encode(_text(side, rows[index]), self.p, generator)
        if limit is not None and len(ids) >= limit:
            return rows[index]
        return np.array([*ids, self.eos])


def _text(side: SideTokenizer, row: Row) -> str:
    return side.decode(row[:-1].tolist())
