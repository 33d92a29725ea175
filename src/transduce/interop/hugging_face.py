"""A folder as ``save_pretrained`` of Hugging Face's transformers writes it: its fields and its tensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transduce.errors import ArtifactError, ConfigError

CONFIG, WEIGHTS = "config.json", "model.safetensors"


class Saved(NamedTuple):
    """What was in the folder."""

    fields: dict[str, Any]
    state: dict[str, Tensor]


def read_saved(folder: str | Path, kind: str) -> Saved:
    """``config.json``, which must be of this kind of model, and ``model.safetensors``."""
    folder = Path(folder).expanduser()
    try:
        fields = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or fields.get("model_type") != kind:
            raise ArtifactError(f"{folder / CONFIG} is not of a {kind} model", "check the path")
        return Saved(fields, load_file(folder / WEIGHTS))
    except OSError as error:
        raise ArtifactError(
            f"cannot read {error.filename or folder}: {error.strerror or error}",
            f"give a folder with {CONFIG} and {WEIGHTS}",
        ) from error
    except (ValueError, SafetensorError) as error:
        raise ArtifactError(f"{folder} is damaged: {error}", "copy it again") from error


def require(fields: Mapping[str, Any], expected: Mapping[str, Any], kind: str) -> None:
    """These fields have these values, or are not there at all."""
    for name, value in expected.items():
        if fields.get(name, value) != value:
            raise ConfigError(
                f"{name} = {fields[name]!r} of this {kind} model is not supported", f"only {value!r} is"
            )


ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}


def activation(fields: Mapping[str, Any], name: str, default: str) -> str:
    """Our name of an activation."""
    theirs = fields.get(name, default)
    if theirs not in ACTIVATIONS:
        raise ConfigError(f"{name} = {theirs!r} is not supported", f"these are: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[theirs]


def their_activation(ours: str) -> str:
    """Their name of an activation."""
    for theirs, name in ACTIVATIONS.items():
        if name == ours:
            return theirs
    raise ConfigError(f"transformers has no activation {ours!r}", "export it to another format")
