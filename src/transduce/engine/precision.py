"""The precision and the device that a model is used with for inference."""

from typing import Literal, TypeVar, cast, overload

import torch
from torch import nn

from transduce.engine.int8 import Int8Linear, Int8Output, quantise_linear_layers
from transduce.engine.native import engine, library
from transduce.engine.packed_gpt import PackedGPT
from transduce.engine.packed_transformer import PackedTransformer
from transduce.errors import ConfigError
from transduce.machine import cpu_reports, would_use_broken_amx
from transduce.models.gpt import GPT
from transduce.models.protocol import Model, Precision
from transduce.models.transformer import Transformer
from transduce.nn.embedding import Embedding

NumberFormat = Literal["float32", "bfloat16", "int8"]


def to_precision(model: Model, precision: Precision) -> Model:
    """Change a model to this precision and return it.

    A `Transformer` or `GPT` in ``int8`` becomes a packed model where the engine can compute it.
    """
    on_cpu = model.device.type == "cpu"
    if precision == "auto":
        precision = preferred_precision(model, model.device)
    if precision == "bfloat16":
        if on_cpu:
            require_bfloat16()
        return model.bfloat16()
    if precision == "int8":
        if not on_cpu:
            raise ConfigError("int8 runs on CPUs only", "use --precision bfloat16 on a GPU")
        return _to_int8(model.float())
    if precision != "float32":
        raise ConfigError(f"precision (--precision) is {precision!r}", "use auto, float32, bfloat16 or int8")
    return model.float()


def preferred_precision(model: Model, device: torch.device) -> NumberFormat:
    """Return what ``auto`` stands for: the fastest precision that gives the same result on every run.

    On CPUs that is ``int8`` with our own engine, which gives each sentence the same result in any batch, and
    ``float32`` without it. The choice depends on the machine alone, never on a measurement.
    """
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    has_engine = device.type == "cpu" and engine() is not None
    return "int8" if has_engine and isinstance(model, Transformer | GPT) else "float32"


def _to_int8(model: Model) -> Model:
    seven_bits = _overflows_in_16_bits()
    output = getattr(model, "output", None)
    # Without an embedding of its own, a model uses its output matrix for input embeddings as well.
    has_own = hasattr(model, "target_embedding") or getattr(model, "input_embedding", None) is not None
    if isinstance(output, Embedding) and has_own:
        model.add_module("output", Int8Output(output.weight, output.bias, seven_bits=seven_bits))
    for child in model.children():
        quantise_linear_layers(child, seven_bits=seven_bits)
    return _packed(model)


def _packed(model: Model) -> Model:
    """Return a model that the engine computes, where it can."""
    if isinstance(model, Transformer):
        return PackedTransformer.of(model) or model
    return (PackedGPT.of(model) if isinstance(model, GPT) else None) or model


def precision_of(model: nn.Module) -> NumberFormat:
    """Return the precision that a model computes in."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        return "int8"
    return "bfloat16" if next(model.parameters()).dtype == torch.bfloat16 else "float32"


def summarize(model: object) -> str:
    """Return a model's kind, precision, device and engine in a few words."""
    name = type(model).__name__.removeprefix("Packed")
    if not isinstance(model, nn.Module) or not any(True for _ in model.parameters()):  # a user's own
        return name
    computed_by = f" ({model.engine.description})" if isinstance(model, PackedTransformer | PackedGPT) else ""
    return f"{name} in {precision_of(model)} on {next(model.parameters()).device}{computed_by}"


def require_bfloat16() -> None:
    """Refuse bfloat16 products on a CPU where they would end the process."""
    if would_use_broken_amx():
        raise ConfigError(
            "this machine reports bfloat16 instructions that it lacks, and torch has already chosen them",
            "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 and start again, or use another --precision",
        )


def describe_engine() -> str:
    """Say in a few words what computes translations on this machine's CPU, for ``transduce --version``."""
    used = engine()
    if used is not None:
        return f"engine: {used.description}"
    if library() is None:
        return "engine: torch (ours is not compiled: install a C compiler, then transduce again)"
    return "engine: torch"


def _overflows_in_16_bits() -> bool:
    """Return whether this processor lacks instructions that add 8-bit products in 32 bits."""
    return not (cpu_reports("avx512_vnni") or cpu_reports("avx_vnni"))


ModelT = TypeVar("ModelT", bound=Model)


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of this name: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:1``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {name!r}", "use --device auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"there is no device {name!r}: torch finds {torch.cuda.device_count()} CUDA devices",
            "use --device auto or cpu",
        )
    if device.type not in ("cpu", "cuda"):
        try:
            torch.empty(1, device=device)
        except (RuntimeError, NotImplementedError, AssertionError) as error:  # depends on the kind of device
            raise ConfigError(
                f"device (--device) is {name!r}, which this torch cannot use", "use auto or cpu"
            ) from error
    return device


def for_inference(model: ModelT, precision: Precision = "auto", device: str = "auto") -> ModelT:
    """Move a model to a device and change it to a precision; it cannot be trained afterwards."""
    return cast("ModelT", to_precision(model.to(choose_device(device)), precision))


@overload
def for_decoding(
    model: Transformer, precision: Precision = "auto", device: str = "auto"
) -> Transformer | PackedTransformer: ...
@overload
def for_decoding(model: GPT, precision: Precision = "auto", device: str = "auto") -> GPT | PackedGPT: ...
@overload
def for_decoding(model: ModelT, precision: Precision = "auto", device: str = "auto") -> ModelT: ...
def for_decoding(model: ModelT, precision: Precision = "auto", device: str = "auto") -> Model:
    """Prepare a model for decoding step by step: like `for_inference`, and packed for the engine."""
    return _packed(for_inference(model, precision, device))
