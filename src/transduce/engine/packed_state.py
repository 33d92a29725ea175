"""The state of a packed model: a decoder state whose memory C can point to."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from transduce.engine.kernels import move_rows
from transduce.nn.state import DecoderState, KeyValue, select_rows


class LayerPointers(ctypes.Structure):
    """The keys and values of one layer."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("key", "value", "memory_key", "memory_value"))


@dataclass(frozen=True)
class Pointers:
    """Pointers to the keys and values of a state, valid while its first layer's keys are these tensors."""

    keys: Tensor  # of the hypotheses
    memory: Tensor  # of the sources
    capacity: int
    layers: "ctypes.Array[LayerPointers]"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy as ``None``: the copy of a state is elsewhere in memory."""
        return type(None), ()


@dataclass
class PackedState(DecoderState):
    """A `DecoderState` whose rows are moved by a kernel, and that remembers where its tensors are."""

    _pointers: Pointers | None = None

    @classmethod
    def of(cls, state: DecoderState) -> "PackedState":
        """Take over the tensors of a new state."""
        return cls(state.memory, state.memory_mask, state.caches, state.width)

    def pointers(self, like: KeyValue) -> Pointers:
        """Return pointers to all layers, with room for one more position.

        ``like`` has the shape of the keys and values of no position: (targets, heads, 0, d).
        """
        cache, memory, known = self.caches[0], self.memory[0].key, self._pointers
        if (
            known is not None
            and cache.held is not None
            and cache.held.key is known.keys
            and memory is known.memory
            and cache.length < known.capacity
        ):
            return known
        layers = [
            (*cache.reserve_next(like), *source)
            for cache, source in zip(self.caches, self.memory, strict=True)
        ]
        structs = (LayerPointers * len(layers))(
            *(LayerPointers(*(part.data_ptr() for part in parts)) for parts in layers)
        )
        keys = layers[0][0]
        self._pointers = Pointers(keys, memory, keys.size(2), structs)
        return self._pointers

    def select_sources(self, rows: Tensor) -> None:
        """Keep these sources, (sources,), moved by one call per kind of tensor."""
        self.memory = _select_layers(self.memory, rows, self.memory[0].key.size(2))
        self.memory_mask = self.memory_mask[rows]

    def select_targets(self, rows: Tensor) -> None:
        """Keep the caches of these hypotheses, (targets,)."""
        held = [cache.held for cache in self.caches if cache.held is not None]
        if held:
            selected = _select_layers(held, rows, self.length)
            for cache, layer in zip(self.caches, selected, strict=True):
                cache.held = layer


def _select_layers(layers: Sequence[KeyValue], rows: Tensor, filled: int) -> list[KeyValue]:
    """Keep these rows of all layers, in place where the kernel can move them."""
    parts = (_select_alike(alike, rows, filled) for alike in zip(*layers, strict=True))
    return [KeyValue(*both) for both in zip(*parts, strict=True)]


def _select_alike(arrays: Sequence[Tensor], rows: Tensor, filled: int) -> Sequence[Tensor]:
    first = arrays[0]
    if len(rows) > len(first) or not move_rows(arrays, rows, filled):
        return [select_rows(each, rows, filled) for each in arrays]
    return arrays if len(rows) == len(first) else [each[: len(rows)] for each in arrays]
