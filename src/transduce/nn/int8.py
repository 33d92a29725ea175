"""Linear maps in 8-bit numbers, for inference: several times as fast on CPUs, and rough.

Weights get a scale for each output, inputs one for each call: what is computed for a sentence depends a
little on the others in its batch.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ENGINES = ("fbgemm", "onednn", "qnnpack")  # libraries that torch has for such products
WIDE = 4  # times as many outputs as inputs
STEP = 16  # rows: oneDNN writes a program for each number of them, which takes it a millisecond


class Int8Linear(nn.Module):
    """``x W + b`` with W in 8 bits, and x rounded to 8 bits as it comes.

    Older processors add products in pairs, and would overflow: there ``seven_bits`` must do for x.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        *,
        seven_bits: bool = False,
        engines: tuple[str, ...] = ENGINES,
    ) -> None:
        """weight (out, in), bias (out,); one of the ``engines`` computes."""
        super().__init__()
        engine = _engine_for(weight, engines)
        self._packed = _pack(weight, bias, engine)
        self._multiple = STEP if engine == "onednn" else 1
        self._seven_bits = seven_bits

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        rows = x.flatten(0, -2)
        if missing := -len(rows) % self._multiple:
            rows = F.pad(rows, (0, 0, 0, missing))  # zeros, which change no scale
        y: Tensor = torch.ops.quantized.linear_dynamic(rows, self._packed, reduce_range=self._seven_bits)
        return y[: x.shape[:-1].numel()].view(*x.shape[:-1], -1)


def _pack(weight: Tensor, bias: Tensor | None, engine: str) -> Any:
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():  # torch will have another home for them one day
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
        rounded = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
    default = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        return torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach().float())
    finally:
        torch.backends.quantized.engine = default


def _engine_for(weight: Tensor, engines: tuple[str, ...]) -> str:
    """oneDNN is ahead where outputs are wide, FBGEMM elsewhere (measured on processors with VNNI)."""
    there = [name for name in engines if name in torch.backends.quantized.supported_engines]
    d_out, d_in = weight.shape
    return "onednn" if d_out >= WIDE * d_in and "onednn" in there else there[0]


class Int8Output(Int8Linear):
    """The pre-softmax projection."""

    def __init__(
        self, weight: Tensor, *, seven_bits: bool = False, engines: tuple[str, ...] = ENGINES
    ) -> None:
        super().__init__(weight, None, seven_bits=seven_bits, engines=engines)

    def logits(self, x: Tensor) -> Tensor:
        """(…, d_model) → (…, vocabulary)."""
        y: Tensor = self(x)
        return y


def round_linear_maps(
    module: nn.Module, *, seven_bits: bool = False, engines: tuple[str, ...] = ENGINES
) -> None:
    """Exchange every linear map inside ``module`` for its 8-bit twin."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            rounded = Int8Linear(child.weight, child.bias, seven_bits=seven_bits, engines=engines)
            setattr(module, name, rounded)
        else:
            round_linear_maps(child, seven_bits=seven_bits, engines=engines)
