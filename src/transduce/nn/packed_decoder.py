"""The decoder's step in one call of C, once its linear maps are in 8 bits: `step` in `kernels.c`."""

import ctypes
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transduce.nn.attention import SelfAttention
from transduce.nn.decoder import Decoder, DecoderLayer
from transduce.nn.int8 import Int8Linear
from transduce.nn.kernels import LANES, LONGEST, Map, library, there
from transduce.nn.state import DecoderState, KeyValue


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
        *((name, ctypes.c_void_p) for name in ("layers", "final", "mask")),
        *(
            (name, ctypes.c_int64)
            for name in ("depth", "sources", "width", "heads", "d_model", "d_ff", "d_k", "d_v")
        ),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "source")),
        ("epsilon", ctypes.c_float),
        ("pre", ctypes.c_int32),
    )


class PackedDecoder:
    """`Decoder.step` of a decoder that `suits`, which must stay as it is."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def __getstate__(self) -> dict[str, object]:
        """For copies, which point elsewhere."""
        return {"_decoder": self._decoder}

    @cached_property
    def _widths(self) -> tuple[int, int, int]:
        attention = self._decoder.layers[0].self_attention
        return attention.heads, attention.d_k, attention.d_v

    @cached_property
    def _held(self) -> tuple[Any, ...]:
        """What is pointed at, for as long as it is."""
        decoder, final = self._decoder, self._decoder.final_norm
        weights: list[Tensor] = []
        layers = (_Layer * len(decoder.layers))(*(_layer(layer, weights) for layer in decoder.layers))
        return layers, _norm(final, weights) if isinstance(final, nn.LayerNorm) else None, weights

    @cached_property
    def _step(self) -> _Step:
        """All that is the same in every step."""
        decoder, (layers, final, _) = self._decoder, self._held
        first = decoder.layers[0]
        around, attention = first.around_self_attention, first.self_attention
        return _Step(
            layers=ctypes.addressof(layers),
            final=None if final is None else ctypes.addressof(final),
            depth=len(decoder.layers),
            heads=attention.heads,
            d_model=around.norm.normalized_shape[0],
            d_ff=layers[0].inner.d_out,
            d_k=attention.d_k,
            d_v=attention.d_v,
            epsilon=around.norm.eps,
            pre=around.pre,
        )

    @staticmethod
    def suits(decoder: Decoder) -> bool:
        """Whether its parts are those that the kernel knows."""
        layers = decoder.layers
        return library() is not None and all(map(_suits, layers)) and len(set(map(_sizes, layers))) == 1

    def fits(self, state: DecoderState) -> bool:
        """Whether sources and targets are short enough for it."""
        return max(state.memory_mask.size(-1), state.length + 1) <= LONGEST

    def __call__(self, x: Tensor, state: DecoderState) -> Tensor:
        """The next position, x (sources, width, d_model) → the same; all before it are in the state."""
        heads, d_k, d_v = self._widths
        said = x.float().clone(memory_format=torch.contiguous_format)  # over what is read
        like = KeyValue(*(said.new_empty(state.targets, heads, 0, width) for width in (d_k, d_v)))
        length, mask = state.length, state.memory_mask.contiguous()
        held = [
            (*cache.extend(like), *memory.contiguous())
            for cache, memory in zip(state.caches, state.memory, strict=True)
        ]
        step = _Step.from_buffer_copy(self._step)
        step.mask, step.sources, step.width = mask.data_ptr(), len(mask), state.width
        step.capacity, step.length, step.source = held[0][0].size(2), length, mask.size(-1)
        pasts = (_Past * len(held))(*(_Past(*(part.data_ptr() for part in parts)) for parts in held))
        if not there().step(ctypes.byref(step), pasts, said.data_ptr(), torch.get_num_threads()):
            raise MemoryError(f"no room for a step of {state.targets:,} targets")
        return said.to(x.dtype)


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
    weight, bias = (part.detach().float().contiguous() for part in (norm.weight, norm.bias))
    held += [weight, bias]
    return _Norm(weight.data_ptr(), bias.data_ptr())
