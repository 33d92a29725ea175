"""Folders written by ``save_pretrained`` of Hugging Face transformers: their fields and tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from transduce.data.tokenizer import SideTokenizer, load_side_tokenizer
from transduce.errors import ArtifactError, ConfigError
from transduce.files import read_json_object, user_path
from transduce.interop.hugging_face_weights import CONFIG, WEIGHTS, read_weights

TOKENIZERS = ("tokenizer.json", "vocab.txt")  # in order of preference
SPECIAL_TOKENS = ("special_tokens_map.json", "tokenizer_config.json")


class Saved(NamedTuple):
    """The content of a folder."""

    fields: dict[str, Any]
    state: dict[str, Tensor]


def read_saved(folder: str | Path, kind: str) -> Saved:
    """Read ``config.json``, which must describe this kind of model, and the weights."""
    folder = user_path(folder)
    fields = read_fields(folder)
    if fields.get("model_type") != kind:
        raise ArtifactError(f"{folder / CONFIG} does not describe a {kind} model", "give another folder")
    return Saved(fields, read_weights(folder))


def read_fields(folder: Path) -> dict[str, Any]:
    """Read ``config.json``."""
    if not (folder / CONFIG).exists():
        raise ArtifactError(f"{folder} has no {CONFIG}", f"give a folder with {CONFIG} and {WEIGHTS}")
    return read_object(folder / CONFIG)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; a file that is missing has no fields."""
    return read_json_object(path, remedy="copy the folder again") if path.exists() else {}


def read_side(folder: str | Path) -> SideTokenizer | None:
    """Load the folder's tokenizer, if it has one in a known format."""
    paths = [user_path(folder) / name for name in TOKENIZERS]
    return next((load_side_tokenizer(path) for path in paths if path.exists()), None)


def named_token(folder: str | Path, name: str) -> str | None:
    """Return the text of a special token, such as ``cls_token``, if the folder says it."""
    for file in SPECIAL_TOKENS:
        token = read_object(user_path(folder) / file).get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    return None


def special_token(folder: str | Path, side: SideTokenizer, name: str, usual: str) -> int:
    """Return the id of a special token, such as ``cls_token``, which the folder may name differently."""
    text = named_token(folder, name) or usual
    number = side.id_of(text)
    if number is None:
        raise ArtifactError(f"the tokenizer in {folder} has no token {text}", "copy the folder again")
    return number


def require(fields: Mapping[str, Any], expected: Mapping[str, Any], kind: str) -> None:
    """Refuse a model in which one of these fields has another value; missing fields are accepted."""
    for name, value in expected.items():
        if fields.get(name, value) != value:
            raise ConfigError(
                f"{name} = {fields[name]!r} of this {kind} model is not supported",
                f"use a model with {name} = {value!r}",
            )


def require_norm(ours: str, theirs: str, kind: str) -> None:
    """Refuse a model whose layer norms are not where this kind of model has them."""
    if ours != theirs:
        raise ConfigError(
            f"a {kind} model of transformers is {theirs}-norm, not {ours}-norm",
            f"use a model with norm = {theirs!r}",
        )


ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
}


def activation(fields: Mapping[str, Any], name: str, default: str) -> str:
    """Return our name of an activation."""
    theirs = fields.get(name, default)
    if theirs not in ACTIVATIONS:
        raise ConfigError(f"{name} = {theirs!r} is not supported", f"use one of: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[theirs]


def their_activation(ours: str) -> str:
    """Return their name of an activation."""
    for theirs, name in ACTIVATIONS.items():
        if name == ours:
            return theirs
    raise ConfigError(f"transformers has no activation {ours!r}", "use another format")
