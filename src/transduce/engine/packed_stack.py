"""Layers as `kernels.c` sees them, once their linear maps are in 8 bits."""

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

from torch import Tensor, nn

from transduce.engine.int8 import Int8Linear
from transduce.engine.kernels import LANES, Map, library
from transduce.nn.attention import SelfAttention
from transduce.nn.decoder import DecoderLayer
from transduce.nn.encoder import EncoderLayer
from transduce.nn.residual import Residual

AnyLayer: TypeAlias = EncoderLayer | DecoderLayer


class Norm(ctypes.Structure):
    """A layer normalisation."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


class Layer(ctypes.Structure):
    """One of an encoder or a decoder; the former leaves out what is for the memory."""

    _fields_ = (
        *((name, Map) for name in ("own", "own_output", "query", "memory_output", "inner", "outer")),
        *((f"around_{name}", Norm) for name in ("own", "memory", "feed_forward")),
    )


class Stack(ctypes.Structure):
    """Layer after layer."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("layers", "final")),
        *((name, ctypes.c_int64) for name in ("depth", "heads", "d_model", "d_ff", "d_k", "d_v")),
        ("epsilon", ctypes.c_float),
        ("pre", ctypes.c_int32),
    )


class PackedStack:
    """The layers of an encoder or a decoder, which must stay as they are; see `of`."""

    def __init__(self, layers: Sequence[AnyLayer], final_norm: nn.Module) -> None:
        self._parts = layers, final_norm

    @classmethod
    def of(cls, layers: Sequence[AnyLayer], final_norm: nn.Module) -> "PackedStack | None":
        """If the layers are such as the kernels know."""
        known = library() is not None and all(map(_suits, layers)) and len(set(map(_sizes, layers))) == 1
        return cls(layers, final_norm) if known else None

    def __getstate__(self) -> dict[str, object]:
        """For copies, which point elsewhere."""
        return {"_parts": self._parts}

    @cached_property
    def _held(self) -> tuple["ctypes.Array[Layer]", Norm | None, list[Tensor]]:
        """What is pointed at, for as long as it is."""
        (layers, final), weights = self._parts, list[Tensor]()
        packed = (Layer * len(layers))(*(_layer(layer, weights) for layer in layers))
        return packed, _norm(final, weights) if isinstance(final, nn.LayerNorm) else None, weights

    @cached_property
    def stack(self) -> Stack:
        """As C sees it."""
        layers, final, _ = self._held
        first = self._parts[0][0]
        attention, around = first.self_attention, first.around_self_attention
        return Stack(
            layers=ctypes.addressof(layers),
            final=None if final is None else ctypes.addressof(final),
            depth=len(layers),
            heads=attention.heads,
            d_model=layers[0].own.d_in,
            d_ff=layers[0].inner.d_out,
            d_k=attention.d_k,
            d_v=attention.d_v,
            epsilon=around.norm.eps,
            pre=around.pre,
        )


def floats(part: Tensor) -> Tensor:
    """Numbers that C can be pointed at."""
    return part.detach().float().contiguous()


def _suits(layer: AnyLayer) -> bool:
    attention = layer.self_attention
    return (
        type(attention) is SelfAttention
        and attention.rotary is None
        and attention.d_k % LANES == 0
        and attention.d_v % LANES == 0
        and layer.feed_forward.activation == "relu"
        and all(isinstance(part, Int8Linear) and part.packed is not None for part in _maps(layer).values())
    )


def _sizes(layer: AnyLayer) -> tuple[object, ...]:
    attention, around = layer.self_attention, layer.around_self_attention
    shapes = [getattr(part, "shape", None) for part in _maps(layer).values()]
    return (*shapes, attention.heads, attention.d_k, attention.d_v, around.pre, around.norm.eps)


def _maps(layer: AnyLayer) -> dict[str, nn.Module]:
    """The linear maps of a layer; the keys and values of a source are there before."""
    own, feed_forward = layer.self_attention, layer.feed_forward
    assert isinstance(own, SelfAttention)  # noqa: S101
    maps: dict[str, nn.Module] = {"own": own.query_key_value, "own_output": own.output}
    if isinstance(layer, DecoderLayer):
        maps |= {"query": layer.memory_attention.query, "memory_output": layer.memory_attention.output}
    return maps | {"inner": feed_forward.inner, "outer": feed_forward.outer}


def _residuals(layer: AnyLayer) -> dict[str, Residual]:
    around = {"own": layer.around_self_attention, "feed_forward": layer.around_feed_forward}
    return around | ({"memory": layer.around_memory_attention} if isinstance(layer, DecoderLayer) else {})


def _layer(layer: AnyLayer, held: list[Tensor]) -> Layer:
    packed = {name: part.packed for name, part in _maps(layer).items() if isinstance(part, Int8Linear)}
    maps = {name: part.map for name, part in packed.items() if part is not None}
    norms = {f"around_{name}": _norm(each.norm, held) for name, each in _residuals(layer).items()}
    return Layer(**maps, **norms)


def _norm(norm: nn.LayerNorm, held: list[Tensor]) -> Norm:
    weight, bias = floats(norm.weight), floats(norm.bias)
    held += [weight, bias]
    return Norm(weight.data_ptr(), bias.data_ptr())
