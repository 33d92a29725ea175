"""Linear layers in 8 bits for inference: several times as fast as float32 on CPUs, with a rounding error.

Weights have one scale per output. The engine gives each input row its own scale, so that the result of a
sentence is independent of its batch; where torch computes, all rows of a batch share one scale.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from transduce.engine.native import Engine, engine
from transduce.engine.packed_linear import PackedLinear, can_pack, kind_of

ENGINES = ("fbgemm", "qnnpack")  # torch's libraries for quantised products, by preference


class Int8Linear(nn.Module):
    """``x W + b`` with W in 8 bits and x quantised to 8 bits on the fly.

    Processors without 8-bit dot products add pairs of products in 16 bits, which can overflow: on those,
    ``seven_bits`` restricts torch's x to 7 bits, and the engine its weights.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, *, seven_bits: bool = False, missing_bias: float = 0.0
    ) -> None:
        """Quantise weight (out, in) and keep bias (out,)."""
        super().__init__()
        self.shape = tuple(weight.shape)
        used = engine()
        self._product = (
            PackedLinear(weight, bias, "int8", used, missing_bias=missing_bias)
            if used and can_pack(weight)
            else TorchLinear(weight, bias, seven_bits)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return self._product(x)

    @property
    def packed(self) -> PackedLinear | None:
        """The layer as the engine uses it; ``None`` where torch computes."""
        return self._product if isinstance(self._product, PackedLinear) else None


class TorchLinear:
    """``x W + b`` in 8 bits, computed by one of torch's libraries."""

    def __init__(self, weight: Tensor, bias: Tensor | None, seven_bits: bool) -> None:
        self._packed = _pack_for_torch(weight, bias)
        self._seven_bits = seven_bits

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, reduce_range=self._seven_bits)
        return y


def _pack_for_torch(weight: Tensor, bias: Tensor | None) -> Any:
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():  # torch announces that these functions will move
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
        quantised = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
    default = torch.backends.quantized.engine
    torch.backends.quantized.engine = next(
        name for name in ENGINES if name in torch.backends.quantized.supported_engines
    )
    try:
        return torch.ops.quantized.linear_prepack(quantised, None if bias is None else bias.detach().float())
    finally:
        torch.backends.quantized.engine = default


class Int8Output(Int8Linear):
    """The pre-softmax projection in 8 bits, in place of an `Embedding`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, seven_bits: bool = False) -> None:
        super().__init__(weight, bias, seven_bits=seven_bits, missing_bias=-torch.inf)

    def logits(self, x: Tensor) -> Tensor:
        """Project to the vocabulary: (…, d_model) → (…, vocabulary)."""
        y: Tensor = self(x)
        return y


def quantise_linear_layers(module: nn.Module, *, seven_bits: bool = False) -> None:
    """Replace every linear layer inside ``module`` by an `Int8Linear`."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child.weight, child.bias, seven_bits=seven_bits))
        else:
            quantise_linear_layers(child, seven_bits=seven_bits)


def is_packable(linear: nn.Module) -> bool:
    """Return whether the engine can compute a linear layer."""
    if isinstance(linear, Int8Linear):
        return linear.packed is not None
    return isinstance(linear, nn.Linear) and can_pack(linear.weight)


def shape_of(linear: nn.Module) -> tuple[int, ...]:
    """Return (out, in) of a linear layer."""
    return tuple(linear.shape if isinstance(linear, Int8Linear) else linear.weight.shape)  # type: ignore[arg-type]


def pack(linear: nn.Module, used: Engine) -> PackedLinear:
    """Return a linear layer as the engine computes it, in its own precision."""
    if isinstance(linear, Int8Linear):
        assert linear.packed is not None  # noqa: S101
        return linear.packed
    assert isinstance(linear, nn.Linear)  # noqa: S101
    return PackedLinear(linear.weight, linear.bias, kind_of(linear.weight), used)
