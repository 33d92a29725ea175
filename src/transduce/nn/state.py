"""The state of incremental decoding, held by the caller between steps, not by the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_RESERVATION = 256  # positions reserved at the start; longer caches grow


class KeyValue(NamedTuple):
    """Keys and values of one attention layer, split into heads."""

    key: Tensor  # (batch, heads, length, d_k)
    value: Tensor  # (batch, heads, length, d_v)

    def contiguous(self) -> "KeyValue":
        """Return the same keys and values in contiguous memory."""
        return KeyValue(self.key.contiguous(), self.value.contiguous())


class KeyValueCache:
    """The keys and values of all positions so far, in memory that is reserved ahead."""

    def __init__(self, capacity: int) -> None:
        self.capacity = min(max(capacity, 1), LARGEST_RESERVATION)
        self.length = 0
        self.held: KeyValue | None = None  # (rows, heads, capacity, width)
        self.padding: Tensor | None = (
            None  # (rows,), padding among the positions of each row, if there is any
        )

    @property
    def next_position(self) -> "int | Tensor":
        """The position after the last one: one for all rows, or (rows,) if some have padding."""
        return self.length if self.padding is None else self.length - self.padding

    def append(self, new: KeyValue) -> KeyValue:
        """Add positions and return all of them, as views."""
        end = self.length + new.key.size(2)
        if self.held is None or end > self.capacity:
            self._reserve(new, end)
        assert self.held is not None  # noqa: S101
        for held, added in zip(self.held, new, strict=True):
            held[:, :, self.length : end] = added
        self.length = end
        return self.filled()

    def reserve_next(self, like: KeyValue) -> KeyValue:
        """Return all reserved memory, (rows, heads, capacity, width), with room for one more position.

        A caller that fills the position increments ``length``. ``like`` has the shape of one position.
        """
        if self.held is None or self.length == self.capacity:
            self._reserve(like, self.length + 1)
        assert self.held is not None  # noqa: S101
        return self.held

    def filled(self) -> KeyValue:
        """Return the keys and values so far, as views; the cache must not be empty."""
        assert self.held is not None  # noqa: S101
        return KeyValue(*(part[:, :, : self.length] for part in self.held))

    def _reserve(self, like: KeyValue, needed: int) -> None:
        """Reserve memory for at least ``needed`` positions, and keep the positions so far."""
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


def select_rows(part: Tensor, rows: Tensor, filled: int) -> Tensor:
    """Keep rows (rows,) of a tensor (batch, heads, length, width), in place if there are not more of them.

    A row may be taken several times. Only the first ``filled`` positions are kept; a row that stays in
    its place is not copied.
    """
    if len(rows) > len(part):
        grown = part.new_empty(len(rows), *part.shape[1:])  # reserved positions stay untouched
        grown[:, :, :filled] = part[:, :, :filled].index_select(0, rows)
        return grown
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
    if len(moved):
        part[moved, :, :filled] = part[rows[moved], :, :filled]
    return part[: len(rows)]


def select_caches(caches: Sequence[KeyValueCache], rows: Tensor) -> None:
    """Keep these rows of the batch, in this order, in the caches of all layers."""
    for cache in caches:
        cache.padding = None if cache.padding is None else cache.padding[rows]
        if cache.held is not None:
            cache.held = KeyValue(*(select_rows(part, rows, cache.length) for part in cache.held))


@dataclass
class DecoderState:
    """The state of a decoder between two steps: ``width`` hypotheses for each source."""

    memory: list[KeyValue]  # keys and values of the sources, for every layer
    memory_mask: Tensor  # (sources, source), True where there is a token
    caches: list[KeyValueCache]  # keys and values of the hypotheses so far, for every layer
    width: int = 1

    @property
    def targets(self) -> int:
        """The number of hypotheses."""
        return len(self.memory_mask) * self.width

    @property
    def length(self) -> int:
        """The number of target positions read so far."""
        return self.caches[0].length if self.caches else 0

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order: beams that continue, sentences that are not finished.

        ``rows`` is (targets,), each with a source of its own from then on; or (sources, width), where those
        of one row must share their source. A hypothesis may be taken several times.
        """
        grid = rows if rows.dim() > 1 else rows[:, None]
        sources = grid[:, 0] // self.width
        self.width = grid.size(1)
        if not torch.equal(sources, torch.arange(len(self.memory_mask), device=sources.device)):
            self.select_sources(sources)
        self.select_targets(grid.flatten())

    def select_sources(self, rows: Tensor) -> None:
        """Keep these sources, (sources,)."""
        self.memory = [
            KeyValue(*(select_rows(part, rows, part.size(2)) for part in layer)) for layer in self.memory
        ]
        self.memory_mask = self.memory_mask[rows]

    def select_targets(self, rows: Tensor) -> None:
        """Keep the caches of these hypotheses, (targets,)."""
        select_caches(self.caches, rows)


@dataclass
class TextState:
    """The state of a decoder without an encoder: texts, each of which continues its own prompt."""

    caches: list[KeyValueCache]  # padded prompts and their continuations, for every layer
    prompt_mask: Tensor  # (texts, prompt), True where the prompt has a token
    lengths: Tensor  # (texts,), positions read so far
    pending: Tensor | None  # (texts,), the prompts' last tokens, until the first step reads them
    length: int = 0  # steps taken; the first one reads the prompt's last token

    def select(self, rows: Tensor) -> None:
        """Keep these texts, in this order; rows (texts,), or (prompts, width) as beams have it."""
        flat = rows.flatten()
        self.prompt_mask, self.lengths = self.prompt_mask[flat], self.lengths[flat]
        self.pending = None if self.pending is None else self.pending[flat]
        select_caches(self.caches, flat)
