"""Number formats of a model that is used and no longer trained."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional as F

from transduce.errors import ConfigError
from transduce.machine import announces, lacks_announced_instructions
from transduce.models.protocol import Precision
from transduce.nn.embedding import Embedding
from transduce.nn.int8 import ROWS, Int8Linear, Int8Output, median_seconds, round_linear_maps

ModelT = TypeVar("ModelT", bound=nn.Module)


def in_precision(model: ModelT, precision: Precision) -> ModelT:
    """The same model, changed to compute in this format; ``auto`` tries out which one is fastest here."""
    if precision == "auto":
        precision = fastest_precision(*_sizes(model))
    lacks_announced_instructions()
    if precision == "bf16":
        return model.bfloat16()
    if precision == "int8":
        if next(model.parameters()).device.type != "cpu":
            raise ConfigError("8-bit numbers are for CPUs", "choose bf16 on a GPU")
        model = model.float()
        seven_bits = _overflows()
        if isinstance(output := getattr(model, "output", None), Embedding):
            model.add_module("output", Int8Output(output.weight, seven_bits=seven_bits))
        for child in model.children():
            round_linear_maps(child, seven_bits=seven_bits)
        return model
    return model.float()


def _overflows() -> bool:
    """Whether this processor lacks instructions that add products of 8-bit numbers in 32 bits."""
    return not (announces("avx512_vnni") or announces("avx_vnni"))


def _sizes(model: nn.Module) -> tuple[int, int]:
    linear = max((m for m in model.modules() if isinstance(m, nn.Linear)), key=lambda m: m.weight.numel())
    return linear.in_features, linear.out_features


def fastest_precision(d_in: int, d_out: int) -> Precision:
    """By the time of one linear map of this size."""
    x, weight = torch.randn(ROWS, d_in), torch.randn(d_out, d_in)
    rough, rounded = (x.bfloat16(), weight.bfloat16()), Int8Linear(weight, None)
    trials: dict[Precision, Callable[[], object]] = {
        "float32": lambda: F.linear(x, weight),
        "int8": lambda: rounded(x),
    }
    if not lacks_announced_instructions():
        trials["bf16"] = lambda: F.linear(*rough)
    with torch.inference_mode():
        return min(trials, key=lambda name: median_seconds(trials[name]))
