"""The device that a model computes on."""

from typing import TypeVar, cast, overload

import torch

from transduce.engine.packed_transformer import PackedTransformer
from transduce.engine.precision import to_precision
from transduce.errors import ConfigError
from transduce.models.protocol import Model, Precision
from transduce.models.transformer import Transformer

ModelT = TypeVar("ModelT", bound=Model)


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


@overload
def for_inference(
    model: Transformer, precision: Precision = "auto", device: str = "auto"
) -> Transformer | PackedTransformer: ...
@overload
def for_inference(model: ModelT, precision: Precision = "auto", device: str = "auto") -> ModelT: ...
def for_inference(model: ModelT, precision: Precision = "auto", device: str = "auto") -> Model:
    """Move a model to a device and change it to a precision; it cannot be trained afterwards."""
    return cast("ModelT", to_precision(model.to(choose_device(device)), precision))
