"""A model's step in one call of C, once its linear maps are in 8 bits: `step` in `kernels.c`."""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transduce.nn.decoder import Decoder
from transduce.nn.embedding import Embedding
from transduce.nn.int8 import Int8Output
from transduce.nn.kernels import LONGEST, there
from transduce.nn.packed import PackedStack, Stack, floats
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache


class _Past(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("key", "value", "memory_key", "memory_value"))


class _Step(ctypes.Structure):
    _fields_ = (
        ("stack", Stack),
        *((name, ctypes.c_void_p) for name in ("output", "embedding", "position", "mask", "rows")),
        *((name, ctypes.c_int64) for name in ("known", "vocabulary", "sources", "width")),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "source")),
        ("scale", ctypes.c_float),
    )


_NO_SUCH_TOKEN = 2


class PackedStep:
    """A model's step, from tokens to logits, of parts that must stay as they are; see `of`."""

    def __init__(
        self, embedding: Embedding, positions: nn.Module, stack: PackedStack, output: Int8Output
    ) -> None:
        self._parts = embedding, positions, stack, output

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
        return {"_parts": self._parts}

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
    def _step(self) -> _Step:
        """All that is the same in every step."""
        embedding, _, stack, output = self._parts
        assert output.packed is not None  # noqa: S101
        return _Step(
            stack=stack.stack,
            output=ctypes.addressof(output.packed.map),
            embedding=self._rows.data_ptr(),
            vocabulary=len(self._rows),
            scale=embedding.scale,
        )

    @cached_property
    def _positions(self) -> dict[int, Tensor]:
        """What is added at each position, (d_model,), as far as it was needed."""
        return {}

    def fits(self, state: DecoderState) -> bool:
        """Whether sources and targets are short enough for it."""
        return max(state.memory_mask.size(-1), state.length + 1) <= LONGEST

    def __call__(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Read one token a target, (targets,) → logits of the next one, (targets, vocabulary)."""
        position, mask, length = self._position(state.length), state.memory_mask, state.length
        past, rows = self._past(state), state.rows_of_ancestors()
        step = _Step.from_buffer_copy(self._step)
        step.position, step.mask = position.data_ptr(), mask.data_ptr()
        step.sources, step.width, step.source = len(mask), state.width, mask.size(-1)
        step.capacity, step.length = past.capacity, length
        step.rows, step.known = rows.data_ptr(), rows.size(1)
        tokens = tokens.long().contiguous()
        logits = torch.empty(state.targets, self._parts[3].shape[0])
        trouble = there().step(
            *(ctypes.byref(step), past.pointers, tokens.data_ptr(), logits.data_ptr()),
            torch.get_num_threads(),
        )
        if trouble == _NO_SUCH_TOKEN:
            raise IndexError(f"tokens are numbers below {step.vocabulary:,}, not {tokens.tolist()}")
        if trouble:
            raise MemoryError(f"no room for a step of {state.targets:,} targets")
        for cache in state.caches:
            cache.length += 1
        return logits

    def _position(self, number: int) -> Tensor:
        found = self._positions.get(number)
        if found is None:
            embedding, positions, *_ = self._parts
            nothing = embedding.weight.new_zeros(1, 1, embedding.weight.size(1))
            found = self._positions[number] = floats(positions(nothing, number)[0, 0])
        return found

    def _past(self, state: DecoderState) -> "_Places":
        """Where a state's keys and values are, with room for one position more."""
        first, memory, places = state.caches[0], state.memory[0].key, state.places
        if isinstance(places, _Places) and places.suffice(state.targets, first, memory):
            return places
        like = KeyValue(*(part.expand(state.targets, -1, -1, -1) for part in self._like))
        held = [(*cache.room(like), *seen) for cache, seen in zip(state.caches, state.memory, strict=True)]
        pointers = (_Past * len(held))(*(_Past(*(part.data_ptr() for part in parts)) for parts in held))
        state.places = _Places(held[0][0], memory, held[0][0].size(2), pointers)
        return state.places


@dataclass(frozen=True)
class _Places:
    """Where the keys and values of a state are, for as long as its first layer's keys are these tensors."""

    keys: Tensor  # of the targets
    memory: Tensor  # of the sources
    capacity: int
    pointers: "ctypes.Array[_Past]"

    def suffice(self, targets: int, cache: KeyValueCache, memory: Tensor) -> bool:
        """Whether they are the first layer's, with room for one position more of so many targets."""
        return (
            cache.held is not None
            and cache.held.key is self.keys
            and memory is self.memory
            and cache.length < self.capacity
            and targets <= len(self.keys)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the state is elsewhere, and has none."""
        return type(None), ()
