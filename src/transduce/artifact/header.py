"""The header of a model folder: what the weights mean."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from transduce.artifact.adapter_header import base_folder, is_adapter, read_adapter_header
from transduce.artifact.weights import (
    COPY_AGAIN,
    HEADER_KEY,
    WEIGHTS,
    expected_shapes,
    read_metadata,
    read_weights,
)
from transduce.config import ModelConfig, Settings, Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError, reason_of, remedy_for
from transduce.files import folder_path, read_small

FORMAT = 2
INT8_FORMAT = 3  # with matrices in 8 bits, which older versions cannot read
FIRST_HASHED_FORMAT = 2
INT8_FORMAT = 3  # with matrices in 8 bits, which older versions cannot read
CONFIG = "config.json"
_IMPORT = "import a model of another toolkit first: transduce import"
_LARGEST = 1 << 24  # bytes of config.json
# Settings of a model that may be edited in config.json, because they do not change what the weights mean.
EDITABLE = {"dropout", "attention_dropout", "activation_dropout"}


class Header(Settings):
    """The content of ``config.json``, which is also stored in the metadata of the weights."""

    format: int = Field(description="Version of the folder's format.")
    transduce: str = Field(description="Version of transduce that wrote the folder.")
    save: str = Field(description="Identifies one save: the same in config.json and in the weights.")
    model: ModelConfig = Field(description="The model's configuration.")
    vocabulary: Vocabulary | None = Field(
        default=None, description="Sizes and special tokens of a text model."
    )
    longest_source: int | None = Field(
        default=None,
        description="Length of the longest source the model was trained on, in tokens, if known.",
    )
    weights: Literal["int8"] | None = Field(
        default=None, description="How matrices are stored: as they are, or rounded to int8."
    )
    files: dict[str, str] = Field(
        default_factory=dict, description="Hashes of the tokenizer's files, by their names."
    )


def read_header(folder: str | Path) -> Header:
    """Read the header stored with the weights, with the changes that ``config.json`` may make to it.

    The header of an adapter folder is that of the model it belongs to.
    """
    folder = folder_path(folder)
    if is_adapter(folder):
        adapter = read_adapter_header(folder)
        base = read_header(base_folder(folder, adapter))
        return base.model_copy(update={"longest_source": adapter.longest_source or base.longest_source})
    if not os.path.isdir(folder):  # noqa: PTH112 (pathlib raises an error if the name is too long)
        raise ArtifactError(f"{folder} is not a folder", f"give the folder that holds {CONFIG} and {WEIGHTS}")
    path = folder / CONFIG
    try:
        readable = parse_header(read_small(path, _LARGEST).decode("utf-8-sig"), path)
    except FileNotFoundError:
        is_checkpoint = folder.parent.name == "checkpoints"
        # Without config.json, a model folder is a first save that was interrupted.
        if (folder / WEIGHTS).exists() and not is_checkpoint:
            return read_stored_header(folder / WEIGHTS)
        raise _no_model(folder) from None
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except UnicodeDecodeError as error:
        raise ArtifactError(f"cannot read {path}: {error}", COPY_AGAIN) from error
    stored = read_stored_header(folder / WEIGHTS)
    if readable.save != stored.save:  # a save that was interrupted after it wrote the weights
        return stored
    _compare(path, readable, stored)
    return readable


def read_model(folder: Path, header: Header) -> dict[str, Tensor]:
    """Read the weights of a model folder with this header."""
    path = folder / WEIGHTS
    try:
        shapes = expected_shapes(header.model, header.vocabulary)
    except ConfigError as error:
        raise ArtifactError(f"{path}: {error.problem}", COPY_AGAIN) from error
    hashed = header.format >= FIRST_HASHED_FORMAT
    return read_weights(path, shapes, hashed=hashed, int8=header.weights == "int8")


def read_stored_header(path: Path) -> Header:
    """Read the header from the metadata of the weights."""
    return parse_header(read_metadata(path).get(HEADER_KEY, "{}"), path)


def parse_header(text: str, path: Path) -> Header:
    """Parse and validate a header; ``path`` is named in errors."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"cannot read {path}: {error}", COPY_AGAIN) from error
    if not isinstance(data, dict) or "transduce" not in data:
        raise ArtifactError(f"{path} was not written by transduce", f"give another folder, or {_IMPORT}")
    version = data.get("format")
    if isinstance(version, int) and version > INT8_FORMAT:
        raise ArtifactError(
            f"{path} has format {version}, but this version of transduce reads formats up to {INT8_FORMAT}",
            "upgrade transduce",
        )
    try:
        return validate(Header, data, where=str(path))
    except ConfigError as error:
        raise ArtifactError(error.problem, error.remedy) from error


def _no_model(folder: Path) -> ArtifactError:
    """Return the error for a folder without a model, with advice where the model may be."""
    if folder.parent.name == "checkpoints":
        final = folder.parent.parent / "final"
        return ArtifactError(
            f"{folder} is a checkpoint, not a model folder", f"give a folder such as {final}"
        )
    final = folder / "final"  # in a run folder
    remedy = f"give the folder that holds {CONFIG} and {WEIGHTS}, or {_IMPORT}"
    return ArtifactError(
        f"{folder} is not a model folder: it has no {CONFIG}",
        f"did you mean {final}?" if final.exists() else remedy,
    )


def _compare(path: Path, readable: Header, stored: Header) -> None:
    """Refuse edits that change the meaning of the weights, whether or not their shapes still fit."""
    edited, saved = _flatten(readable), _flatten(stored)
    free = {f"model.{name}" for name in EDITABLE}
    for key in (key for key in {**saved, **edited} if key not in free):
        if edited.get(key) != saved.get(key):
            raise ArtifactError(
                f"{path} says {key} = {edited.get(key)!r}, "
                f"but the weights were saved with {saved.get(key)!r}",
                "undo the edit, or save the model again",
            )


def _flatten(header: Header) -> dict[str, object]:
    """Return all settings by their dotted names."""
    tables = header.model_dump(exclude={"save", "transduce"})
    return {key.removeprefix("."): value for key, value in _entries(tables, "")}


def _entries(table: Mapping[str, Any], name: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _entries(value, f"{name}.{key}")
        else:
            yield f"{name}.{key}", value
