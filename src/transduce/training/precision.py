"""The number format of matrix products in training, chosen by timing. Weights are always float32."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple

import torch

from transduce.engine.precision import require_bfloat16
from transduce.errors import ConfigError
from transduce.machine import avoid_broken_amx

Precision = Literal["float32", "bfloat16"]


class PrecisionChoice(NamedTuple):
    """A precision, and a text that names it and gives the reason."""

    precision: Precision
    reason: str


@contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """Compute matrix products in this precision inside a ``with`` block."""
    if precision != "bfloat16":
        yield
        return
    if device.type == "cpu":
        require_bfloat16()
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            yield
    except RuntimeError as error:
        # oneDNN has no bfloat16 kernel for some layers (LSTM, GRU) on processors without AVX-512.
        if device.type == "cpu" and "could not create a primitive" in str(error):
            raise ConfigError(
                f"this CPU cannot train the model in bfloat16 ({_first_line(error)})",
                'set precision = "float32" in [training]',
            ) from error
        raise


def default_precision(device: torch.device) -> PrecisionChoice:
    """Choose without a trial: for a sharded model, which may not fit into one process."""
    reason = "chosen without a trial: the model is sharded"
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return PrecisionChoice("bfloat16", f"bfloat16 ({reason})")
    return PrecisionChoice("float32", f"float32 ({reason})")


def faster_precision(step: Callable[[], object], device: torch.device) -> PrecisionChoice:
    """Choose the precision in which ``step`` takes less time; float32 if it fails in bfloat16.

    Processors without bfloat16 instructions emulate them, a hundred times slower. A single matrix product
    shows that before a whole step is tried.
    """
    if device.type == "cpu" and avoid_broken_amx():
        return PrecisionChoice(
            "float32", "float32 (this machine reports bfloat16 instructions that it does not have)"
        )
    ratio = _product_seconds(torch.float32, device) / _product_seconds(torch.bfloat16, device)
    if ratio < 1:
        return PrecisionChoice(
            "float32", f"float32 (matrix products in bfloat16 are {1 / ratio:.2g} times slower here)"
        )
    float32 = median_seconds(step, device)
    try:
        with autocast("bfloat16", device):
            bfloat16 = median_seconds(step, device)
    except (RuntimeError, ConfigError) as error:
        reason = f"a step in bfloat16 fails on this machine: {_first_line(error)}"
        return PrecisionChoice("float32", f"float32 ({reason})")
    ratio = float32 / bfloat16
    if ratio > 1:
        return PrecisionChoice("bfloat16", f"bfloat16 ({ratio:.2g} times as fast as float32 here)")
    return PrecisionChoice("float32", "float32 (faster than bfloat16 here)")


def _product_seconds(dtype: torch.dtype, device: torch.device) -> float:
    x = torch.ones(256, 512, dtype=dtype, device=device)
    return median_seconds(partial(torch.matmul, x, x.t()), device)


def median_seconds(run: Callable[[], object], device: torch.device, runs: int = 3) -> float:
    """Return the median time that ``run`` takes on a device, after one call that does not count."""
    seconds = []
    for _ in range(1 + runs):
        begin = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". ")[0]
