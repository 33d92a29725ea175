"""Where a model computes: the choice of a device, and the precision that suits it."""

from typing import TypeVar

import torch
from torch import nn

from transduce.engine.precision import in_precision
from transduce.errors import ConfigError
from transduce.models.protocol import Precision

ModelT = TypeVar("ModelT", bound=nn.Module)


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of this name: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:1``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device (--device) is {name!r}", "use auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device (--device) is {name!r}, but torch finds {torch.cuda.device_count()} CUDA devices",
            "use auto or cpu",
        )
    return device


def for_inference(model: ModelT, precision: Precision = "auto", device: str = "auto") -> ModelT:
    """Move a model to a device and change it to a precision; it cannot be trained afterwards.

    With ``auto``, a short trial finds the fastest precision on a CPU; a GPU computes in bfloat16 if it can.
    """
    place = choose_device(device)
    if precision == "auto" and place.type != "cpu":
        native = place.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bfloat16" if native else "float32"
    model = model.to(place)
    return model if precision == "float32" else in_precision(model, precision)
