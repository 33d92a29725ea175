"""Number formats of a model that is used and no longer trained."""

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional as F

from transduce.engine.int8 import Int8Linear, Int8Output, round_linear_maps
from transduce.engine.packed_encoder import PackedEncoder
from transduce.engine.packed_step import PackedStep
from transduce.errors import ConfigError
from transduce.machine import announces, lacks_announced_instructions, uses_lacking_instructions
from transduce.models.protocol import Precision
from transduce.models.transformer import Transformer
from transduce.nn.embedding import Embedding

ModelT = TypeVar("ModelT", bound=nn.Module)
_ROWS = 128  # of the trial: 32 sentences with a beam of four


def in_precision(model: ModelT, precision: Precision) -> ModelT:
    """The same model, changed to compute in this format; ``auto`` tries out which one is fastest here."""
    if precision == "auto":
        precision = fastest_precision(*_sizes(model))
    on_cpu = next(model.parameters()).device.type == "cpu"
    if precision == "bfloat16":
        if on_cpu:
            require_bfloat16()
        return model.bfloat16()
    if precision == "int8":
        if not on_cpu:
            raise ConfigError("8-bit numbers are for CPUs", "choose bf16 on a GPU")
        model = model.float()
        seven_bits = _overflows()
        output = getattr(model, "output", None)
        # Without an embedding of its own, a model reads tokens by its output, too.
        if isinstance(output, Embedding) and hasattr(model, "target_embedding"):
            model.add_module("output", Int8Output(output.weight, seven_bits=seven_bits))
        for child in model.children():
            round_linear_maps(child, seven_bits=seven_bits)
        if isinstance(model, Transformer):
            model.fast_encoder = PackedEncoder.of(model.encoder)
            model.fast_step = PackedStep.of(
                model.target_embedding, model.target_positions, model.decoder, model.output
            )
        return model
    return model.float()


def precision_of(model: nn.Module) -> Precision:
    """In which format a model computes."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        return "int8"
    return "bfloat16" if next(model.parameters()).dtype == torch.bfloat16 else "float32"


def require_bfloat16() -> None:
    """Refuse products of bfloat16 numbers on this CPU if they would end the process."""
    if uses_lacking_instructions():
        raise ConfigError(
            "torch, which has computed before, would use instructions for bfloat16 that this machine "
            "announces and does not have",
            "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 and start again, or choose another precision",
        )


def _overflows() -> bool:
    """Whether this processor lacks instructions that add products of 8-bit numbers in 32 bits."""
    return not (announces("avx512_vnni") or announces("avx_vnni"))


def _sizes(model: nn.Module) -> tuple[int, int]:
    linear = max((m for m in model.modules() if isinstance(m, nn.Linear)), key=lambda m: m.weight.numel())
    return linear.in_features, linear.out_features


def fastest_precision(d_in: int, d_out: int) -> Precision:
    """By the time of one linear map of this size."""
    x, weight = torch.ones(_ROWS, d_in), torch.ones(d_out, d_in)
    rough, rounded = (x.bfloat16(), weight.bfloat16()), Int8Linear(weight, None)
    trials: dict[Precision, Callable[[], object]] = {
        "float32": lambda: F.linear(x, weight),
        "int8": lambda: rounded(x),
    }
    if not lacks_announced_instructions():
        trials["bfloat16"] = lambda: F.linear(*rough)
    with torch.inference_mode():
        return min(trials, key=lambda name: _median_seconds(trials[name]))


def _median_seconds(run: Callable[[], object], times: int = 9) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)
