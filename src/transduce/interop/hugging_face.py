"""A folder as ``save_pretrained`` of Hugging Face's transformers writes it: its fields and its tensors."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transduce.data.tokenizer import SideTokenizer, load_side_tokenizer
from transduce.errors import ArtifactError, ConfigError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
TOKENIZERS = ("tokenizer.json", "vocab.txt")  # the first of them that is there
NAMES = ("special_tokens_map.json", "tokenizer_config.json")  # of special tokens


class Saved(NamedTuple):
    """What was in the folder."""

    fields: dict[str, Any]
    state: dict[str, Tensor]


def read_saved(folder: str | Path, kind: str) -> Saved:
    """``config.json``, which must be of this kind of model, and ``model.safetensors``."""
    folder = Path(folder).expanduser()
    fields = read_fields(folder)
    if fields.get("model_type") != kind:
        raise ArtifactError(f"{folder / CONFIG} is not of a {kind} model", "check the path")
    with _reading(folder):
        return Saved(fields, load_file(folder / WEIGHTS))


def read_fields(folder: Path) -> dict[str, Any]:
    """``config.json``."""
    with _reading(folder):
        fields = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if not isinstance(fields, dict):
        raise ArtifactError(f"{folder / CONFIG} holds no fields", "check the path")
    return fields


def read_side(folder: str | Path) -> SideTokenizer | None:
    """The tokenizer of the folder, if it has one in a file that we can read."""
    paths = [Path(folder).expanduser() / name for name in TOKENIZERS]
    return next((load_side_tokenizer(path) for path in paths if path.exists()), None)


def special_token(folder: str | Path, side: SideTokenizer, name: str, usual: str) -> int:
    """The id of a special token, ``cls_token`` for one, which is called as the folder's files say."""
    called = usual
    for path in (Path(folder).expanduser() / file for file in NAMES):
        if path.exists():
            with _reading(path.parent):
                fields = json.loads(path.read_text(encoding="utf-8"))
            found = fields.get(name) if isinstance(fields, dict) else None
            found = found.get("content") if isinstance(found, dict) else found
            if isinstance(found, str):
                called = found
                break
    number = side.id_of(called)
    if number is None:
        raise ArtifactError(f"the tokenizer in {folder} has no {called}", "copy the folder again")
    return number


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
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


def require_norm(ours: str, theirs: str, kind: str) -> None:
    """Models of this kind have their norms where ours has them."""
    if ours != theirs:
        raise ConfigError(
            f"a {kind} model of transformers is {theirs}-norm, not {ours}-norm", "train another"
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
