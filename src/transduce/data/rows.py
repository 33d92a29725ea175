"""Many sequences of ids as two arrays: what a list of lists would hold, in a tenth of the memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Sequences end to end, and how long each is."""

    ids: Ids
    lengths: Numbers

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, rows: Iterable[list[int]]) -> "Rows":
        """From lists."""
        rows = list(rows)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())), lengths)

    def select(self, wanted: npt.NDArray[np.bool_]) -> "Rows":
        """Only these."""
        return Rows(self.ids[np.repeat(wanted, self.lengths)], self.lengths[wanted])

    def ended(self, token: int) -> "Rows":
        """With this token at the end of each."""
        return Rows(np.insert(self.ids, np.cumsum(self.lengths), token), self.lengths + 1)

    def started(self, token: int) -> "Rows":
        """With this token at the beginning of each."""
        return Rows(np.insert(self.ids, np.cumsum(self.lengths) - self.lengths, token), self.lengths + 1)

    def tolist(self) -> list[list[int]]:
        """As lists."""
        ids, ends = self.ids.tolist(), np.cumsum(self.lengths).tolist()
        return [ids[end - length : end] for end, length in zip(ends, self.lengths.tolist(), strict=True)]
