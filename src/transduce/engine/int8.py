"""Linear maps in 8-bit numbers, for inference: several times as fast on CPUs, and rough.

Weights get a scale for each output. Inputs get one for each row where our own kernel computes, and what is
found for a sentence does not depend on the others of its batch; elsewhere torch computes, with one for all.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from transduce.engine.kernels import PackedLinear, can_pack

ENGINES = ("fbgemm", "qnnpack")  # libraries that torch has for such products


class Int8Linear(nn.Module):
    """``x W + b`` with W in 8 bits, and x rounded to 8 bits as it comes.

    Older processors add products in pairs, and would overflow: there ``seven_bits`` must do for x.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, seven_bits: bool = False) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        self.shape = tuple(weight.shape)
        self._product = (
            PackedLinear(weight, bias) if can_pack(weight) else TorchLinear(weight, bias, seven_bits)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return self._product(x)

    @property
    def packed(self) -> PackedLinear | None:
        """What our own kernel computes with, if it does."""
        return self._product if isinstance(self._product, PackedLinear) else None


class TorchLinear:
    """The same by one of torch's libraries."""

    def __init__(self, weight: Tensor, bias: Tensor | None, seven_bits: bool) -> None:
        self._packed = _pack(weight, bias)
        self._seven_bits = seven_bits

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, reduce_range=self._seven_bits)
        return y


def _pack(weight: Tensor, bias: Tensor | None) -> Any:
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():  # torch will have another home for them one day
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
        rounded = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
    default = torch.backends.quantized.engine
    torch.backends.quantized.engine = next(
        name for name in ENGINES if name in torch.backends.quantized.supported_engines
    )
    try:
        return torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach().float())
    finally:
        torch.backends.quantized.engine = default


class Int8Output(Int8Linear):
    """The pre-softmax projection."""

    def __init__(self, weight: Tensor, *, seven_bits: bool = False) -> None:
        super().__init__(weight, None, seven_bits=seven_bits)

    def logits(self, x: Tensor) -> Tensor:
        """(…, d_model) → (…, vocabulary)."""
        y: Tensor = self(x)
        return y


def round_linear_maps(module: nn.Module, *, seven_bits: bool = False) -> None:
    """Exchange every linear map inside ``module`` for its 8-bit twin."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child.weight, child.bias, seven_bits=seven_bits))
        else:
            round_linear_maps(child, seven_bits=seven_bits)
