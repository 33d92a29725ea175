"""Linear maps in 8-bit numbers, for inference: several times as fast on CPUs, and rough.

Weights get a scale for each output, inputs one for each call: what is computed for a sentence depends a
little on the others in its batch.
"""

import warnings

import torch
from torch import Tensor, nn


class Int8Linear(nn.Module):
    """``x W + b`` with W in 8 bits, and x rounded to 8 bits as it comes.

    Older processors add products in pairs, and would overflow: there ``seven_bits`` must do for x.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, seven_bits: bool = False) -> None:
        """weight (out, in), bias (out,)."""
        super().__init__()
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch will have another home for them one day
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
        bias = None if bias is None else bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack(rounded, bias)
        self._seven_bits = seven_bits

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, reduce_range=self._seven_bits)
        return y


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
