"""The layers of an encoder or a decoder, as the engine sees them."""

import ctypes
from collections.abc import Iterator, Sequence
from functools import cached_property
from threading import RLock
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.engine.int8 import is_packable, pack, shape_of
from transduce.engine.native import Engine
from transduce.engine.packed_linear import MULTIPLE, PackedLinear
from transduce.engine.structures import LayerStruct, NormStruct, StackStruct
from transduce.nn.decoder import DecoderLayer
from transduce.nn.encoder import EncoderLayer
from transduce.nn.multi_head_attention import FullSelfAttention, MultiHeadAttention
from transduce.nn.positional import RotaryPositions, rotations
from transduce.nn.residual import Residual
from transduce.nn.ssru import SSRU

AnyLayer: TypeAlias = EncoderLayer | DecoderLayer
ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "swish": 4, "swiglu": 5}
RESERVING = RLock()  # so that no thread replaces the longer table of another
FIRST_POSITIONS = 256  # for which tables are computed ahead; they grow


class PackedStack:
    """The layers of an encoder or a decoder, which must not change afterwards. Make one with `of`."""

    def __init__(self, layers: Sequence[AnyLayer], final_norm: nn.Module, engine: Engine) -> None:
        self.layers, self.engine = layers, engine
        self._norms = [{name: copies_of(around.norm) for name, around in _residuals(each)} for each in layers]
        self._final = copies_of(final_norm) if isinstance(final_norm, nn.LayerNorm) else None
        self._linear = [_packed_layers(layer, engine) for layer in layers]
        # The last table is the longest; other threads may still read the shorter ones.
        self._rotations: list[Tensor] = []

    @classmethod
    def of(cls, layers: Sequence[AnyLayer], final_norm: nn.Module, engine: Engine) -> "PackedStack | None":
        """Pack the layers, or return ``None`` if the engine cannot compute them.

        Linear layers are packed in float32, unless they are in 8 bits already.
        """
        supported = all(map(_is_supported, layers)) and len(set(map(_sizes, layers))) == 1
        return cls(layers, final_norm, engine) if supported else None

    def __getstate__(self) -> dict[str, object]:
        """Leave the pointers out: a copy has its own memory."""
        left_out = ("struct", "_structs")
        return {name: value for name, value in self.__dict__.items() if name not in left_out} | {
            "_rotations": []
        }

    def reserve(self, positions: int) -> None:
        """Compute the rotations of at least this many positions, if positions enter by rotation."""
        with RESERVING:
            self._reserve(positions)

    def _reserve(self, positions: int) -> None:
        attention = self.layers[0].self_attention
        if not isinstance(attention, FullSelfAttention) or attention.rotary is None:
            return
        if positions <= self.struct.positions:
            return
        count = max(positions, 2 * self.struct.positions, FIRST_POSITIONS)
        self._rotations.append(rotations(count, attention.d_k).contiguous())
        self.struct.rotations, self.struct.positions = self._rotations[-1].data_ptr(), count

    @cached_property
    def _structs(self) -> tuple["ctypes.Array[LayerStruct]", NormStruct | None]:
        parts = (
            {name: part.struct for name, part in linear.items()}
            | {name: norm_struct(copies) for name, copies in norms.items()}
            for linear, norms in zip(self._linear, self._norms, strict=True)
        )
        layers = (LayerStruct * len(self.layers))(*(LayerStruct(**part) for part in parts))
        return layers, norm_struct(self._final) if self._final else None

    @cached_property
    def struct(self) -> StackStruct:
        """The stack, as C sees it."""
        layers, final = self._structs
        first = self.layers[0]
        around = first.around_self_attention
        attention = _attention_of(first)
        return StackStruct(
            layers=ctypes.addressof(layers),
            final=None if final is None else ctypes.addressof(final),
            depth=len(layers),
            heads=attention.heads,
            d_model=layers[0].query_key_value.d_in,
            d_ff=layers[0].outer.d_in,
            d_k=attention.d_k,
            d_v=attention.d_v,
            epsilon=around.norm.eps,
            pre=around.pre,
            activation=ACTIVATIONS[first.feed_forward.activation],
            has_memory=isinstance(first, DecoderLayer),
            is_recurrent=isinstance(first.self_attention, SSRU),
        )


def as_float32(part: Tensor) -> Tensor:
    """Return a contiguous float32 tensor that C can point to."""
    return part.detach().float().contiguous()


def _is_supported(layer: AnyLayer) -> bool:
    own, attention = layer.self_attention, _attention_of(layer)
    if isinstance(own, SSRU):
        # The states of the unit are stored like the keys of all heads.
        is_known = attention.heads * attention.d_k == own.forget_bias.numel()
    else:
        is_known = isinstance(own, FullSelfAttention) and isinstance(own.rotary, RotaryPositions | None)
    return (
        is_known
        and not any(width % MULTIPLE for width in (attention.d_k, attention.d_v))
        and layer.feed_forward.activation in ACTIVATIONS
        and all(is_packable(part) for _, part in _linear_layers(layer))
    )


def _attention_of(layer: AnyLayer) -> MultiHeadAttention:
    """Return an attention of the layer; all of them have the same sizes."""
    return layer.memory_attention if isinstance(layer, DecoderLayer) else layer.self_attention


def _sizes(layer: AnyLayer) -> tuple[object, ...]:
    attention, around = _attention_of(layer), layer.around_self_attention
    shapes = [shape_of(part) for _, part in _linear_layers(layer)]
    return (*shapes, attention.heads, attention.d_k, attention.d_v, around.pre, around.norm.eps)


def _packed_layers(layer: AnyLayer, engine: Engine) -> dict[str, PackedLinear]:
    """Pack the linear layers by their names in `LayerStruct`."""
    packed = {name: pack(part, engine) for name, part in _linear_layers(layer)}
    if isinstance(layer.self_attention, SSRU):
        bias = layer.self_attention.forget_bias
        packed["query_key_value"] = packed["query_key_value"].with_bias(F.pad(bias, (0, len(bias))))
    return packed


def _linear_layers(layer: AnyLayer) -> Iterator[tuple[str, nn.Module]]:
    """Yield the linear layers with their names in `LayerStruct`."""
    attention = layer.self_attention
    if isinstance(attention, SSRU):
        yield "query_key_value", attention.forget_candidate
    else:
        assert isinstance(attention, FullSelfAttention)  # noqa: S101
        yield "query_key_value", attention.query_key_value
        yield "self_output", attention.output
    if isinstance(layer, DecoderLayer):
        memory = layer.memory_attention
        yield "memory_query", memory.query
        yield "memory_key_value", memory.key_value
        yield "memory_output", memory.output
    yield "inner", layer.feed_forward.inner
    yield "outer", layer.feed_forward.outer


def _residuals(layer: AnyLayer) -> Iterator[tuple[str, Residual]]:
    """Yield the residual connections with their names in `LayerStruct`."""
    yield "around_self_attention", layer.around_self_attention
    if isinstance(layer, DecoderLayer):
        yield "around_memory_attention", layer.around_memory_attention
    yield "around_feed_forward", layer.around_feed_forward


def copies_of(norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a layer norm, as C reads them."""
    bias = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
    return as_float32(norm.weight), as_float32(bias)


def norm_struct(copies: tuple[Tensor, Tensor]) -> NormStruct:
    """Return a layer norm, as C sees it; the copies must stay alive."""
    weight, bias = copies
    return NormStruct(weight.data_ptr(), bias.data_ptr())
