"""A model's step in one call of C, once its linear maps are in 8 bits: `step` in `kernels.c`."""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transduce.nn.attention import SelfAttention
from transduce.nn.decoder import Decoder, DecoderLayer
from transduce.nn.embedding import Embedding
from transduce.nn.int8 import Int8Linear, Int8Output
from transduce.nn.kernels import LANES, LONGEST, Map, library, there
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache


class _Norm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, Map) for name in ("own", "own_output", "query", "memory_output", "inner", "outer")),
        *((f"around_{name}", _Norm) for name in ("own", "memory", "feed_forward")),
    )


class _Past(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("key", "value", "memory_key", "memory_value"))


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("layers", "final", "output", "embedding", "position", "mask")),
        *(
            (name, ctypes.c_int64)
            for name in ("vocabulary", "depth", "sources", "width", "heads", "d_model", "d_ff", "d_k", "d_v")
        ),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "source")),
        ("scale", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        ("pre", ctypes.c_int32),
    )


_NO_SUCH_TOKEN = 2


class PackedStep:
    """A model's step, from tokens to logits, of parts that must stay as they are; see `of`."""

    def __init__(
        self, embedding: Embedding, positions: nn.Module, decoder: Decoder, output: Int8Output
    ) -> None:
        self._parts = embedding, positions, decoder, output

    @classmethod
    def of(
        cls, embedding: Embedding, positions: nn.Module, decoder: Decoder, output: nn.Module
    ) -> "PackedStep | None":
        """If the parts are such as the kernel knows."""
        known = (
            library() is not None
            and all(map(_suits, decoder.layers))
            and len(set(map(_sizes, decoder.layers))) == 1
        )
        if known and isinstance(output, Int8Output) and output.packed is not None:
            return cls(embedding, positions, decoder, output)
        return None

    def __getstate__(self) -> dict[str, object]:
        """For copies, which point elsewhere."""
        return {"_parts": self._parts}

    @cached_property
    def _like(self) -> KeyValue:
        """Keys and values of one target, and no position of it."""
        attention = self._parts[2].layers[0].self_attention
        return KeyValue(*(torch.empty(1, attention.heads, 0, d) for d in (attention.d_k, attention.d_v)))

    @cached_property
    def _held(self) -> tuple[Any, ...]:
        """What is pointed at, for as long as it is."""
        embedding, _, decoder, _ = self._parts
        final, weights = decoder.final_norm, [_floats(embedding.weight)]
        layers = (_Layer * len(decoder.layers))(*(_layer(layer, weights) for layer in decoder.layers))
        return layers, _norm(final, weights) if isinstance(final, nn.LayerNorm) else None, weights

    @cached_property
    def _step(self) -> _Step:
        """All that is the same in every step."""
        (embedding, _, decoder, output), (layers, final, (rows, *_)) = self._parts, self._held
        first = decoder.layers[0]
        around, attention = first.around_self_attention, first.self_attention
        assert output.packed is not None  # noqa: S101
        return _Step(
            layers=ctypes.addressof(layers),
            final=None if final is None else ctypes.addressof(final),
            output=ctypes.addressof(output.packed.map),
            embedding=rows.data_ptr(),
            vocabulary=len(rows),
            depth=len(decoder.layers),
            heads=attention.heads,
            d_model=rows.size(1),
            d_ff=layers[0].inner.d_out,
            d_k=attention.d_k,
            d_v=attention.d_v,
            scale=embedding.scale,
            epsilon=around.norm.eps,
            pre=around.pre,
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
        past = self._past(state)
        step = _Step.from_buffer_copy(self._step)
        step.position, step.mask = position.data_ptr(), mask.data_ptr()
        step.sources, step.width, step.source = len(mask), state.width, mask.size(-1)
        step.capacity, step.length = past.capacity, length
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
            found = self._positions[number] = _floats(positions(nothing, number)[0, 0])
        return found

    def _past(self, state: DecoderState) -> "_Places":
        """Where a state's keys and values are, with room for one position more."""
        first, memory, places = state.caches[0], state.memory[0].key, state.places
        if isinstance(places, _Places) and places.are_those_of(first, memory):
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

    def are_those_of(self, cache: KeyValueCache, memory: Tensor) -> bool:
        """The first layer's, with room for one position more."""
        held = cache.held
        return (
            held is not None
            and held.key is self.keys
            and memory is self.memory
            and cache.length < self.capacity
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the state is elsewhere, and has none."""
        return type(None), ()


def _suits(layer: DecoderLayer) -> bool:
    attention = layer.self_attention
    return (
        type(attention) is SelfAttention
        and attention.rotary is None
        and attention.d_k % LANES == 0
        and attention.d_v % LANES == 0
        and layer.feed_forward.activation == "relu"
        and all(isinstance(part, Int8Linear) and part.packed is not None for part in _maps(layer))
    )


def _sizes(layer: DecoderLayer) -> tuple[object, ...]:
    attention, around = layer.self_attention, layer.around_self_attention
    shapes = [getattr(part, "shape", None) for part in _maps(layer)]
    return (*shapes, attention.heads, attention.d_k, attention.d_v, around.pre, around.norm.eps)


def _maps(layer: DecoderLayer) -> list[nn.Module]:
    """The linear maps of a step, in the order of their use; the source's keys and values are there before."""
    own, memory, feed_forward = layer.self_attention, layer.memory_attention, layer.feed_forward
    assert isinstance(own, SelfAttention)  # noqa: S101
    return [
        *(own.query_key_value, own.output),
        *(memory.query, memory.output),
        *(feed_forward.inner, feed_forward.outer),
    ]


def _layer(layer: DecoderLayer, held: list[Tensor]) -> _Layer:
    packed = [part.packed for part in _maps(layer) if isinstance(part, Int8Linear)]
    residuals = (layer.around_self_attention, layer.around_memory_attention, layer.around_feed_forward)
    return _Layer(
        *(part.map for part in packed if part is not None), *(_norm(each.norm, held) for each in residuals)
    )


def _norm(norm: nn.LayerNorm, held: list[Tensor]) -> _Norm:
    weight, bias = _floats(norm.weight), _floats(norm.bias)
    held += [weight, bias]
    return _Norm(weight.data_ptr(), bias.data_ptr())


def _floats(part: Tensor) -> Tensor:
    return part.detach().float().contiguous()
