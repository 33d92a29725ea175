"""The layers of an encoder or a decoder in 8 bits, as `kernels.c` sees them."""

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

from torch import Tensor, nn

from transduce.engine.int8 import Int8Linear
from transduce.engine.kernels import LANES, LinearStruct, library
from transduce.nn.decoder import DecoderLayer
from transduce.nn.encoder import EncoderLayer
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.residual import Residual

AnyLayer: TypeAlias = EncoderLayer | DecoderLayer


class NormStruct(ctypes.Structure):
    """A layer normalisation."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


class LayerStruct(ctypes.Structure):
    """One layer of an encoder or a decoder; an encoder leaves the fields of memory attention empty."""

    _fields_ = (
        *((name, LinearStruct) for name in ("query_key_value", "self_output")),
        *((name, LinearStruct) for name in ("memory_query", "memory_output", "inner", "outer")),
        *((f"around_{name}", NormStruct) for name in ("self_attention", "memory_attention", "feed_forward")),
    )


class StackStruct(ctypes.Structure):
    """A stack of layers."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("layers", "final")),
        *((name, ctypes.c_int64) for name in ("depth", "heads", "d_model", "d_ff", "d_k", "d_v")),
        ("epsilon", ctypes.c_float),
        ("pre", ctypes.c_int32),
    )


class PackedStack:
    """The layers of an encoder or a decoder, which must not change afterwards. Make one with `of`."""

    def __init__(self, layers: Sequence[AnyLayer], final_norm: nn.Module) -> None:
        self._modules = layers, final_norm

    @classmethod
    def of(cls, layers: Sequence[AnyLayer], final_norm: nn.Module) -> "PackedStack | None":
        """Pack the layers, or return ``None`` if the kernels cannot compute them."""
        supported = (
            library() is not None and all(map(_is_supported, layers)) and len(set(map(_sizes, layers))) == 1
        )
        return cls(layers, final_norm) if supported else None

    def __getstate__(self) -> dict[str, object]:
        """Leave the pointers out: a copy has its own memory."""
        return {"_modules": self._modules}

    @cached_property
    def _structs(self) -> tuple["ctypes.Array[LayerStruct]", NormStruct | None, list[Tensor]]:
        """The layers, the final norm, and the tensors they point to, kept alive."""
        (layers, final_norm), tensors = self._modules, list[Tensor]()
        packed = (LayerStruct * len(layers))(*(_layer_struct(layer, tensors) for layer in layers))
        final = _norm_struct(final_norm, tensors) if isinstance(final_norm, nn.LayerNorm) else None
        return packed, final, tensors

    @cached_property
    def struct(self) -> StackStruct:
        """The stack, as C sees it."""
        layers, final, _ = self._structs
        first = self._modules[0][0]
        attention, around = first.self_attention, first.around_self_attention
        return StackStruct(
            layers=ctypes.addressof(layers),
            final=None if final is None else ctypes.addressof(final),
            depth=len(layers),
            heads=attention.heads,
            d_model=layers[0].query_key_value.d_in,
            d_ff=layers[0].inner.d_out,
            d_k=attention.d_k,
            d_v=attention.d_v,
            epsilon=around.norm.eps,
            pre=around.pre,
        )


def as_float32(part: Tensor) -> Tensor:
    """Return a contiguous float32 tensor that C can point to."""
    return part.detach().float().contiguous()


def _is_supported(layer: AnyLayer) -> bool:
    attention = layer.self_attention
    return (
        isinstance(attention, FullSelfAttention)
        and attention.rotary is None
        and attention.d_k % LANES == 0
        and attention.d_v % LANES == 0
        and layer.feed_forward.activation == "relu"
        and all(
            isinstance(part, Int8Linear) and part.packed is not None
            for part in _linear_layers(layer, attention).values()
        )
    )


def _sizes(layer: AnyLayer) -> tuple[object, ...]:
    attention, around = layer.self_attention, layer.around_self_attention
    assert isinstance(attention, FullSelfAttention)  # noqa: S101
    shapes = [getattr(part, "shape", None) for part in _linear_layers(layer, attention).values()]
    return (*shapes, attention.heads, attention.d_k, attention.d_v, around.pre, around.norm.eps)


def _linear_layers(layer: AnyLayer, attention: FullSelfAttention) -> dict[str, nn.Module]:
    """Return the linear layers by their names in `LayerStruct`, without those that project the source."""
    linear: dict[str, nn.Module] = {
        "query_key_value": attention.query_key_value,
        "self_output": attention.output,
    }
    if isinstance(layer, DecoderLayer):
        memory = layer.memory_attention
        linear |= {"memory_query": memory.query, "memory_output": memory.output}
    return linear | {"inner": layer.feed_forward.inner, "outer": layer.feed_forward.outer}


def _residuals(layer: AnyLayer) -> dict[str, Residual]:
    """Return the residual connections by their names in `LayerStruct`."""
    around = {
        "around_self_attention": layer.around_self_attention,
        "around_feed_forward": layer.around_feed_forward,
    }
    if isinstance(layer, DecoderLayer):
        around["around_memory_attention"] = layer.around_memory_attention
    return around


def _layer_struct(layer: AnyLayer, tensors: list[Tensor]) -> LayerStruct:
    attention = layer.self_attention
    assert isinstance(attention, FullSelfAttention)  # noqa: S101
    linear = _linear_layers(layer, attention)
    packed = {name: part.packed for name, part in linear.items() if isinstance(part, Int8Linear)}
    structs = {name: part.struct for name, part in packed.items() if part is not None}
    norms = {name: _norm_struct(around.norm, tensors) for name, around in _residuals(layer).items()}
    return LayerStruct(**structs, **norms)


def _norm_struct(norm: nn.LayerNorm, tensors: list[Tensor]) -> NormStruct:
    weight, bias = as_float32(norm.weight), as_float32(norm.bias)
    tensors += [weight, bias]
    return NormStruct(weight.data_ptr(), bias.data_ptr())
