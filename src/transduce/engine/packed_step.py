"""One decoding step in one call of C, from tokens to logits: `step` in `kernels.c`; and its state."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transduce.engine.int8 import Int8Output
from transduce.engine.kernels import MAX_KEYS, move_rows, required_library
from transduce.engine.packed_stack import PackedStack, StackStruct, as_float32
from transduce.nn.decoder import Decoder
from transduce.nn.embedding import Embedding
from transduce.nn.positional import LearnedPositions
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


class StepStruct(ctypes.Structure):
    """Everything that a step needs."""

    _fields_ = (
        ("stack", StackStruct),
        *(
            (name, ctypes.c_void_p)
            for name in ("output", "embedding", "positions", "mask", "own_rows", "rows")
        ),
        *(
            (name, ctypes.c_int64)
            for name in ("rows_stride", "past_length", "vocabulary", "sources", "width")
        ),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "source")),
        ("scale", ctypes.c_float),
    )


UNKNOWN_TOKEN = 2  # the error code of `step`


class PackedStep:
    """A model's step, from tokens to logits; its modules must not change afterwards. Make one with `of`."""

    def __init__(
        self, embedding: Embedding, positions: nn.Module, stack: PackedStack, output: Int8Output
    ) -> None:
        self._modules = embedding, positions, stack, output
        # The positional encodings computed so far, (positions, d_model). The last table is the longest; other
        # threads may still read the shorter ones.
        self._tables = [torch.empty(0, 0)]

    @classmethod
    def of(
        cls, embedding: Embedding, positions: nn.Module, decoder: Decoder, output: nn.Module
    ) -> "PackedStep | None":
        """Pack the modules of a step, or return ``None`` if the kernel cannot compute them."""
        stack = PackedStack.of(decoder.layers, decoder.final_norm)
        if stack and isinstance(output, Int8Output) and output.packed is not None:
            return cls(embedding, positions, stack, output)
        return None

    def __getstate__(self) -> dict[str, object]:
        """Leave the pointers out: a copy has its own memory."""
        return {"_modules": self._modules, "_tables": self._tables[-1:]}

    @cached_property
    def _empty(self) -> KeyValue:
        """Keys and values of one hypothesis and no position."""
        stack = self._modules[2].struct
        return KeyValue(*(torch.empty(1, stack.heads, 0, d) for d in (stack.d_k, stack.d_v)))

    @cached_property
    def _embeddings(self) -> Tensor:
        """The embedding of every token, kept alive."""
        return as_float32(self._modules[0].weight)

    @cached_property
    def _struct(self) -> StepStruct:
        """The fields that are the same in every step."""
        embedding, _, stack, output = self._modules
        assert output.packed is not None  # noqa: S101
        return StepStruct(
            stack=stack.struct,
            output=ctypes.addressof(output.packed.struct),
            embedding=self._embeddings.data_ptr(),
            vocabulary=len(self._embeddings),
            scale=embedding.scale,
        )

    @property
    def vocabulary(self) -> int:
        """The number of logits per hypothesis."""
        return self._modules[3].shape[0]

    @property
    def max_length(self) -> int:
        """The longest source or target that the kernel can read."""
        positions = self._modules[1]
        return min(MAX_KEYS, len(positions.weight)) if isinstance(positions, LearnedPositions) else MAX_KEYS

    def fits(self, state: PackedState) -> bool:
        """Return whether sources and targets are short enough for the kernel."""
        return max(state.memory_mask.size(1), state.length + 1) <= MAX_KEYS

    def __call__(self, tokens: Tensor, state: PackedState) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary)."""
        struct, pointers = self.prepare(state, state.targets, state.length + 1)
        tokens = tokens.long().contiguous()
        logits = torch.empty(state.targets, self.vocabulary)
        error = required_library().step(
            *(ctypes.byref(struct), pointers.layers, tokens.data_ptr(), logits.data_ptr()),
            torch.get_num_threads(),
        )
        if error == UNKNOWN_TOKEN:
            raise IndexError(f"tokens must be less than {struct.vocabulary:,}, not {tokens.tolist()}")
        if error:
            raise MemoryError(f"cannot allocate memory for a step of {state.targets:,} hypotheses")
        for cache in state.caches:
            cache.length += 1
        return logits

    def prepare(self, state: PackedState, targets: int, length: int) -> tuple[StepStruct, Pointers]:
        """Return the arguments of the kernel for up to ``targets`` hypotheses of up to ``length`` tokens."""
        mask, pointers = state.memory_mask, self.pointers(state, targets)
        struct = StepStruct.from_buffer_copy(self._struct)
        struct.positions, struct.mask = self._positions(length).data_ptr(), mask.data_ptr()
        struct.sources, struct.width, struct.source = mask.size(0), state.width, mask.size(1)
        struct.capacity, struct.length = pointers.capacity, state.length
        return struct, pointers

    def pointers(self, state: PackedState, targets: int) -> Pointers:
        """Return pointers to the state, with room for ``targets`` hypotheses and one more position."""
        return state.pointers(KeyValue(*(part.expand(targets, -1, -1, -1) for part in self._empty)))

    def _positions(self, count: int) -> Tensor:
        """Return the encodings of at least ``count`` positions: (positions, d_model)."""
        table = self._tables[-1]
        if count > table.size(0):
            embedding, positions, *_ = self._modules
            size = max(count, min(2 * count, self.max_length))
            zeros = embedding.weight.new_zeros(1, size, embedding.weight.size(1))
            table = as_float32(positions(zeros)[0])
            self._tables.append(table)
        return table
