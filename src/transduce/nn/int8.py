"""Linear maps in 8-bit numbers, for inference: several times as fast on CPUs, and rough.

Weights get a scale for each output, inputs one for each call: what is computed for a sentence depends a
little on the others in its batch.
"""

import statistics
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

ENGINES = ("fbgemm", "onednn", "qnnpack")  # libraries that torch has for such products
ROWS = 128  # of a trial: 32 sentences with a beam of four


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
        """weight (out, in), bias (out,); the fastest of the ``engines`` computes."""
        super().__init__()
        self._packed = _pack(weight, bias, _fastest_engine(*weight.shape, engines))
        self._seven_bits = seven_bits

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, reduce_range=self._seven_bits)
        return y


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


@cache
def _fastest_engine(d_out: int, d_in: int, engines: tuple[str, ...]) -> str:
    """Which of these libraries is ahead depends on sizes and processor."""
    x, weight = torch.randn(ROWS, d_in), torch.randn(d_out, d_in)
    trials = {
        engine: partial(torch.ops.quantized.linear_dynamic, x, _pack(weight, None, engine))
        for engine in engines
        if engine in torch.backends.quantized.supported_engines
    }
    return min(trials, key=lambda engine: median_seconds(trials[engine]))


def median_seconds(run: Callable[[], object], times: int = 9) -> float:
    """How long it takes; the first time, which sets things up, is as good as left out."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


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
