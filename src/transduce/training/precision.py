"""Which number format is faster here: measured, not hoped for. Weights are float32 in any case."""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from transduce.engine.precision import require_bfloat16
from transduce.machine import lacks_announced_instructions

Precision = Literal["float32", "bfloat16"]


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """A context in which matrix products have this precision."""
    if precision == "bfloat16":
        if device.type == "cpu":
            require_bfloat16()
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def default_precision(device: torch.device) -> tuple[Precision, str]:
    """What is likely to be faster, and why no trial was made: for a model that may not fit whole."""
    why = "chosen without a trial: the model is sharded"
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16", f"bfloat16 ({why})"
    return "float32", f"float32 ({why})"


def faster_precision(step: Callable[[], object], device: torch.device) -> tuple[Precision, str]:
    """The precision in which ``step`` takes less time, and why it was chosen.

    Processors without bfloat16 instructions imitate them, a hundred times slower: a single matrix product
    tells, before a whole step is tried.
    """
    if device.type == "cpu" and lacks_announced_instructions():
        return "float32", "float32 (this machine announces instructions for bfloat16 that it does not have)"
    product = _product_ratio(device)
    if product < 1:
        return "float32", f"float32 (matrix products in bfloat16 are {1 / product:.2g} times slower here)"
    seconds = {}
    for precision in ("float32", "bfloat16"):
        with autocast(precision, device):
            seconds[precision] = median_seconds(step, device)
    ratio = seconds["float32"] / seconds["bfloat16"]
    chosen: Precision = "bfloat16" if ratio > 1 else "float32"
    return chosen, f"{chosen} (a step in bfloat16 is {ratio:.2f} times as fast as in float32 here)"


def _product_ratio(device: torch.device) -> float:
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(256, 512, dtype=dtype, device=device)
        seconds.append(median_seconds(lambda x=x: x @ x.t(), device))  # type: ignore[misc]
    return seconds[0] / seconds[1]


def median_seconds(run: Callable[[], object], device: torch.device, times: int = 3) -> float:
    """Return the median duration of some calls, after one that warms up."""
    found = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])  # the first one warms up
