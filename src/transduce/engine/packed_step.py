"""A model's step in one call of C, once its linear maps are in 8 bits: `step` in `kernels.c`."""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transduce.engine.int8 import Int8Output
from transduce.engine.kernels import LONGEST, there
from transduce.engine.packed_stack import PackedStack, Stack, floats
from transduce.nn.decoder import Decoder
from transduce.nn.embedding import Embedding
from transduce.nn.positional import LearnedPositions
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache


class Past(ctypes.Structure):
    """The keys and values of one layer."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("key", "value", "memory_key", "memory_value"))


class Step(ctypes.Structure):
    """All that a step takes."""

    _fields_ = (
        ("stack", Stack),
        *((name, ctypes.c_void_p) for name in ("output", "embedding", "positions", "mask", "home", "rows")),
        *((name, ctypes.c_int64) for name in ("rows_stride", "known", "vocabulary", "sources", "width")),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "source")),
        ("scale", ctypes.c_float),
    )


NO_SUCH_TOKEN = 2


class PackedStep:
    """A model's step, from tokens to logits, of parts that must stay as they are; see `of`."""

    def __init__(
        self, embedding: Embedding, positions: nn.Module, stack: PackedStack, output: Int8Output
    ) -> None:
        self._parts = embedding, positions, stack, output
        # What is added at each position, (positions, d_model), as far as it was needed: the last has most,
        # the others may still be read, in other threads.
        self._tables = [torch.empty(0, 0)]

    @classmethod
    def of(
        cls, embedding: Embedding, positions: nn.Module, decoder: Decoder, output: nn.Module
    ) -> "PackedStep | None":
        """If the parts are such as the kernel knows."""
        stack = PackedStack.of(decoder.layers, decoder.final_norm)
        if stack and isinstance(output, Int8Output) and output.packed is not None:
            return cls(embedding, positions, stack, output)
        return None

    def __getstate__(self) -> dict[str, object]:
        """For copies, which point elsewhere."""
        return {"_parts": self._parts, "_tables": self._tables[-1:]}

    @cached_property
    def _like(self) -> KeyValue:
        """Keys and values of one target, and no position of it."""
        stack = self._parts[2].stack
        return KeyValue(*(torch.empty(1, stack.heads, 0, d) for d in (stack.d_k, stack.d_v)))

    @cached_property
    def _rows(self) -> Tensor:
        """The embedding of every token, for as long as it is pointed at."""
        return floats(self._parts[0].weight)

    @cached_property
    def _step(self) -> Step:
        """All that is the same in every step."""
        embedding, _, stack, output = self._parts
        assert output.packed is not None  # noqa: S101
        return Step(
            stack=stack.stack,
            output=ctypes.addressof(output.packed.map),
            embedding=self._rows.data_ptr(),
            vocabulary=len(self._rows),
            scale=embedding.scale,
        )

    @property
    def vocabulary(self) -> int:
        """How many logits a step gives."""
        return self._parts[3].shape[0]

    @property
    def longest(self) -> int:
        """The longest source or target it can read."""
        positions = self._parts[1]
        return min(LONGEST, len(positions.weight)) if isinstance(positions, LearnedPositions) else LONGEST

    def fits(self, state: DecoderState) -> bool:
        """Whether sources and targets are short enough for it."""
        return max(state.memory_mask.size(-1), state.length + 1) <= LONGEST

    def __call__(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Read one token a target, (targets,) → logits of the next one, (targets, vocabulary)."""
        step, past = self.prepared(state, state.targets, state.length + 1)
        tokens = tokens.long().contiguous()
        logits = torch.empty(state.targets, self.vocabulary)
        trouble = there().step(
            *(ctypes.byref(step), past.pointers, tokens.data_ptr(), logits.data_ptr()),
            torch.get_num_threads(),
        )
        if trouble == NO_SUCH_TOKEN:
            raise IndexError(f"tokens are numbers below {step.vocabulary:,}, not {tokens.tolist()}")
        if trouble:
            raise MemoryError(f"no room for a step of {state.targets:,} targets")
        for cache in state.caches:
            cache.length += 1
        return logits

    def prepared(self, state: DecoderState, targets: int, length: int) -> tuple[Step, "Places"]:
        """What steps take of a state, until there are so many targets, of this length; see `past`."""
        mask, past = state.memory_mask, self.past(state, targets)
        step = Step.from_buffer_copy(self._step)
        step.positions, step.mask = self._positions(length).data_ptr(), mask.data_ptr()
        step.sources, step.width, step.source = mask.size(0), state.width, mask.size(-1)
        step.capacity, step.length = past.capacity, state.length
        return step, past

    def _positions(self, count: int) -> Tensor:
        """What is added at so many positions, or more: (positions, d_model)."""
        table = self._tables[-1]
        if count > table.size(0):
            embedding, positions, *_ = self._parts
            more = max(count, min(2 * count, self.longest))
            nothing = embedding.weight.new_zeros(1, more, embedding.weight.size(1))
            table = floats(positions(nothing)[0])
            self._tables.append(table)
        return table

    def past(self, state: DecoderState, targets: int) -> "Places":
        """Where a state's keys and values are, with room for so many targets and one position more."""
        first, memory, places = state.caches[0], state.memory[0].key, state.places
        if isinstance(places, Places) and places.suffice(first, memory):
            return places
        like = KeyValue(*(part.expand(targets, -1, -1, -1) for part in self._like))
        held = [(*cache.room(like), *seen) for cache, seen in zip(state.caches, state.memory, strict=True)]
        pointers = (Past * len(held))(*(Past(*(part.data_ptr() for part in parts)) for parts in held))
        state.places = Places(held[0][0], memory, held[0][0].size(2), pointers)
        return state.places


@dataclass(frozen=True)
class Places:
    """Where the keys and values of a state are, for as long as its first layer's keys are these tensors."""

    keys: Tensor  # of the targets
    memory: Tensor  # of the sources
    capacity: int
    pointers: "ctypes.Array[Past]"

    def suffice(self, cache: KeyValueCache, memory: Tensor) -> bool:
        """Whether they are the first layer's, with room for one position more."""
        return (
            cache.held is not None
            and cache.held.key is self.keys
            and memory is self.memory
            and cache.length < self.capacity
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the state is elsewhere, and has none."""
        return type(None), ()
