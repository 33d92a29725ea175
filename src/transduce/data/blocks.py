"""Blocks of plain text: ids cut to the length that a model reads at once."""

import numpy as np

from transduce.data.rows import Ids, Numbers, Rows


class Cutter:
    """Cuts rows of ids, as they arrive, into blocks of at most ``size`` ids.

    Packed rows form one text, end to end, and every block but the last is full. Otherwise each row is a
    block, or several if it is too long. Neighboring blocks share ``overlap`` ids: a language model, which
    predicts every id of a block but the first, then predicts all of them.
    """

    def __init__(self, size: int, *, overlap: int = 0, packed: bool = True) -> None:
        if size <= overlap:
            raise ValueError(f"blocks of {size} ids cannot share {overlap}")
        self.size, self.overlap, self.packed = size, overlap, packed
        self._left: Ids = np.empty(0, np.uint32)  # the end of packed text that does not fill a block yet

    def cut(self, rows: Rows) -> Rows:
        """Return the blocks that these rows complete."""
        stride = self.size - self.overlap
        if self.packed:
            ids = np.concatenate((self._left, rows.ids))
            count = max(0, (len(ids) - self.overlap) // stride)
            self._left = ids[count * stride :]
            return _slices(ids, np.arange(count) * stride, np.full(count, self.size))
        rows = rows.select(rows.lengths > self.overlap)
        ends = np.cumsum(rows.lengths)
        counts = np.maximum(1, -(-(rows.lengths - self.overlap) // stride))
        index_in_row = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = np.repeat(ends - rows.lengths, counts) + index_in_row * stride
        return _slices(rows.ids, begins, np.minimum(self.size, np.repeat(ends, counts) - begins))

    def rest(self) -> Rows:
        """Return what is left at the end: one shorter block, or no block."""
        left, self._left = self._left, self._left[:0]
        size = len(left) if len(left) > self.overlap else 0
        return Rows(left[:size], np.array([size] if size else [], np.int64))


def _slices(ids: Ids, begins: Numbers, lengths: Numbers) -> Rows:
    places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
    return Rows(ids[places], lengths)
