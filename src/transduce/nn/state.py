"""What decoding remembers between steps; the caller holds it, the model does not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.engine.kernels import move_rows

ROOM = 256  # positions, at most, for which it is set aside beforehand; what becomes longer gets more


class KeyValue(NamedTuple):
    """Keys and values of one attention layer, split into heads."""

    key: Tensor  # (batch, heads, length, d_k)
    value: Tensor  # (batch, heads, length, d_v)

    def contiguous(self) -> "KeyValue":
        """The same, with heads that lie one after the other in memory."""
        return KeyValue(self.key.contiguous(), self.value.contiguous())


def select_rows(arrays: Sequence[Tensor], rows: Tensor, filled: int | None = None) -> Sequence[Tensor]:
    """Rows (rows,) of arrays that are alike, (batch, heads, length, width), moved inside them if possible.

    A row may be taken several times, and one that stays where it is costs nothing. Only the first ``filled``
    positions count. Where there are as many rows as before, the arrays are the same ones.
    """
    held = arrays[0]
    if len(rows) > len(held):
        return [_more_rows(each, rows, filled) for each in arrays]
    if not move_rows(arrays, rows, held.size(2) if filled is None else filled):
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        for part in (each[:, :, :filled] for each in arrays if len(moved)):
            part[moved] = part[rows[moved]]
    return arrays if len(rows) == len(held) else [each[: len(rows)] for each in arrays]


def _more_rows(held: Tensor, rows: Tensor, filled: int | None) -> Tensor:
    # What was set aside for positions to come stays empty, and takes no memory yet.
    new = held.new_empty(len(rows), *held.shape[1:])
    new[:, :, :filled] = held[:, :, :filled].index_select(0, rows)
    return new


def select_layers(layers: Sequence[KeyValue], rows: Tensor, filled: int | None = None) -> list[KeyValue]:
    """The same of the keys and values of several layers."""
    parts = (select_rows(alike, rows, filled) for alike in zip(*layers, strict=True))
    return [KeyValue(*both) for both in zip(*parts, strict=True)]


class KeyValueCache:
    """The keys and values of all positions so far, in memory set aside beforehand."""

    def __init__(self, capacity: int) -> None:
        self.capacity = min(max(capacity, 1), ROOM)
        self.length = 0
        self.held: KeyValue | None = None  # other tensors if they are elsewhere or have more or fewer rows

    def append(self, new: KeyValue) -> KeyValue:
        """Add positions; gives all of them, as views."""
        end = self.length + new.key.size(2)
        if self.held is None or end > self.capacity:
            self._set_aside(new, end)
        assert self.held is not None  # noqa: S101
        for held, added in zip(self.held, new, strict=True):
            held[:, :, self.length : end] = added
        self.length = end
        return self.filled()

    def room(self, like: KeyValue) -> KeyValue:
        """All that is set aside, (rows, heads, capacity, width), where one position more has its place.

        A caller that fills it adds to ``length``. ``like`` says how large the rest is.
        """
        if self.held is None or self.length == self.capacity:
            self._set_aside(like, self.length + 1)
        assert self.held is not None  # noqa: S101
        return self.held

    def filled(self) -> KeyValue:
        """The keys and values so far, as views; there must be some."""
        assert self.held is not None  # noqa: S101
        return KeyValue(*(part[:, :, : self.length] for part in self.held))

    def _set_aside(self, like: KeyValue, needed: int) -> None:
        """Room for ``needed`` positions and as many again, keeping what is there."""
        if needed > self.capacity:
            self.capacity = 2 * needed
        old = None if self.held is None else self.filled()
        self.held = KeyValue(*(self._empty_like(part) for part in like))
        if old is not None:
            for held, part in zip(self.held, old, strict=True):
                held[:, :, : self.length] = part

    def _empty_like(self, part: Tensor) -> Tensor:
        rows, heads, _, width = part.shape
        return part.new_empty(rows, heads, self.capacity, width)


def select_caches(caches: Sequence[KeyValueCache], rows: Tensor) -> None:
    """Keep these rows of the batch, in this order; the caches, one a layer, are equally long."""
    filled = [(cache, cache.held) for cache in caches if cache.held is not None]
    selected = select_layers([held for _, held in filled], rows, caches[0].length) if filled else []
    for (cache, _), held in zip(filled, selected, strict=True):
        cache.held = held


@dataclass
class DecoderState:
    """One decoder in the middle of its sentences: for each source, ``width`` targets under way."""

    memory: list[KeyValue]  # the sources, as every layer sees them
    memory_mask: Tensor  # (sources, 1, 1, source)
    caches: list[KeyValueCache]  # the targets so far, a layer each
    width: int = 1
    places: object = None  # where all this is, for a kernel that keeps it in mind

    @property
    def targets(self) -> int:
        """How many are under way."""
        return len(self.memory_mask) * self.width

    @property
    def length(self) -> int:
        """How many target positions have been read."""
        return self.caches[0].length if self.caches else 0

    def select(self, rows: Tensor) -> None:
        """Keep these targets, in this order: beams that go on, sentences that are not finished.

        rows (targets,), each with a source of its own from then on; or (sources, width), where those of a row
        must share their source, which is kept only once. A target may be taken several times.
        """
        grid = rows if rows.dim() > 1 else rows[:, None]
        flat, sources = grid.flatten(), grid[:, 0] // self.width
        self.width = grid.size(1)
        if not torch.equal(sources, torch.arange(len(self.memory_mask), device=sources.device)):
            self.memory = select_layers(self.memory, sources)
            (self.memory_mask,) = select_rows([self.memory_mask], sources)
        select_caches(self.caches, flat)


@dataclass
class TextState:
    """Texts under way, each after a prompt of its own length: what a decoder without an encoder remembers."""

    caches: list[KeyValueCache]  # prompts, padded, and what came after; a layer each
    seen: Tensor  # (texts, prompt), which of the prompts' positions hold a token
    lengths: Tensor  # (texts,), positions read so far
    pending: Tensor | None  # (texts,), the prompts' last tokens, until the first step reads them
    length: int = 0  # steps taken: tokens read after the prompt, the first of them being its last

    def select(self, rows: Tensor) -> None:
        """Keep these texts, in this order; rows (texts,), or (prompts, width), as beams have it."""
        flat = rows.flatten()
        self.seen, self.lengths = self.seen[flat], self.lengths[flat]
        self.pending = None if self.pending is None else self.pending[flat]
        select_caches(self.caches, flat)
