"""What decoding remembers between steps; the caller holds it, the model does not."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class KeyValue(NamedTuple):
    """Keys and values of one attention layer, split into heads."""

    key: Tensor  # (batch, heads, length, d_k)
    value: Tensor  # (batch, heads, length, d_v)

    def select(self, rows: Tensor) -> "KeyValue":
        """Keep these rows of the batch, in this order; a row may be taken several times."""
        return KeyValue(self.key.index_select(0, rows), self.value.index_select(0, rows))


class KeyValueCache:
    """The keys and values of all positions so far, in memory set aside beforehand."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, 1)
        self.length = 0
        self._buffer: KeyValue | None = None

    def append(self, new: KeyValue) -> KeyValue:
        """Add positions; gives all of them, as views."""
        end = self.length + new.key.size(2)
        if self._buffer is None or end > self.capacity:
            self._set_aside(new, end)
        assert self._buffer is not None  # noqa: S101
        for held, added in zip(self._buffer, new, strict=True):
            held[:, :, self.length : end] = added
        self.length = end
        return self._filled()

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self._buffer is None:
            return
        kept = self._filled().select(rows)
        self._buffer = KeyValue(*(self._empty_like(part) for part in kept))
        for held, part in zip(self._buffer, kept, strict=True):
            held[:, :, : self.length] = part

    def _filled(self) -> KeyValue:
        assert self._buffer is not None  # noqa: S101
        return KeyValue(*(part[:, :, : self.length] for part in self._buffer))

    def _set_aside(self, like: KeyValue, needed: int) -> None:
        """Room for ``needed`` positions and as many again, keeping what is there."""
        if needed > self.capacity:
            self.capacity = 2 * needed
        old = None if self._buffer is None else self._filled()
        self._buffer = KeyValue(*(self._empty_like(part) for part in like))
        if old is not None:
            for held, part in zip(self._buffer, old, strict=True):
                held[:, :, : self.length] = part

    def _empty_like(self, part: Tensor) -> Tensor:
        batch, heads, _, width = part.shape
        return part.new_empty(batch, heads, self.capacity, width)


@dataclass
class DecoderState:
    """One decoder in the middle of its sentences: a row for each of them."""

    memory: list[KeyValue]  # the source, as every layer sees it
    memory_mask: Tensor  # (batch, 1, 1, source)
    caches: list[KeyValueCache]  # the target so far, a layer each

    @property
    def length(self) -> int:
        """How many target positions have been read."""
        return self.caches[0].length if self.caches else 0

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order: beams that go on, sentences that are not finished.

        rows (new batch,), indices into the old batch; a row may be taken several times.
        """
        self.memory = [layer.select(rows) for layer in self.memory]
        self.memory_mask = self.memory_mask.index_select(0, rows)
        for cache in self.caches:
            cache.select(rows)
