"""Plain text as blocks of ids, as long as a model can read at a time."""

import numpy as np

from transduce.data.rows import Ids, Numbers, Rows


class Cutter:
    """Cuts rows of ids, as they come, into blocks of at most ``size``.

    Packed, the rows count as one text, end to end, and every block but the last is full; otherwise a row is a
    block, or several if it is too long. Two neighbours share ``overlap`` ids: a language model, which
    predicts each id of a block but the first, then predicts them all.
    """

    def __init__(self, size: int, *, overlap: int = 0, packed: bool = True) -> None:
        if size <= overlap:
            raise ValueError(f"blocks of {size} cannot share {overlap}")
        self.size, self.overlap, self.packed = size, overlap, packed
        self._left: Ids = np.empty(0, np.uint32)  # of packed text, what is no whole block yet

    def cut(self, rows: Rows) -> Rows:
        """The blocks that these rows make whole."""
        stride = self.size - self.overlap
        if self.packed:
            ids = np.concatenate((self._left, rows.ids))
            count = max(0, (len(ids) - self.overlap) // stride)
            self._left = ids[count * stride :]
            return _pieces(ids, np.arange(count) * stride, np.full(count, self.size))
        rows = rows.select(rows.lengths > self.overlap)
        ends = np.cumsum(rows.lengths)
        counts = np.maximum(1, -(-(rows.lengths - self.overlap) // stride))
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # within its row
        begins = np.repeat(ends - rows.lengths, counts) + number * stride
        return _pieces(rows.ids, begins, np.minimum(self.size, np.repeat(ends, counts) - begins))

    def rest(self) -> Rows:
        """What is left at the end: a shorter block, or none."""
        left, self._left = self._left, self._left[:0]
        size = len(left) if len(left) > self.overlap else 0
        return Rows(left[:size], np.array([size] if size else [], np.int64))


def _pieces(ids: Ids, begins: Numbers, lengths: Numbers) -> Rows:
    places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
    return Rows(ids[places], lengths)
