"""The header of an adapter folder: what its weights mean, and which model they belong to.

An adapter folder holds ``adapter.json`` and ``adapter.safetensors``, with the same header in its metadata. It
can be given wherever a model folder can: the model that it adapts is found by its path and its hash.
"""

import json
import os
from pathlib import Path
from typing import Any

from pydantic import Field

from transduce.artifact.weights import COPY_AGAIN, HEADER_KEY, read_metadata
from transduce.config import Settings, validate
from transduce.config.settings import Count, Positive
from transduce.errors import ArtifactError, ConfigError, DataError, reason_of, remedy_for
from transduce.files import folder_path, read_small

ADAPTER, ADAPTER_WEIGHTS = "adapter.json", "adapter.safetensors"
ADAPTER_FORMAT = 1
_EDITABLE = {"base", "transduce"}  # the model may move


class AdapterHeader(Settings):
    """The content of ``adapter.json``."""

    format: int = Field(description="Version of the folder's format.")
    transduce: str = Field(description="Version of transduce that wrote the folder.")
    save: str = Field(description="Identifies one save: the same in adapter.json and in the weights.")
    rank: Count = Field(description="Rank of the additions.")
    alpha: Positive = Field(description="The additions are scaled by alpha / rank.")
    layers: list[str] = Field(description="Names of the adapted linear layers.")
    base: str = Field(description="Folder of the adapted model, absolute or relative to the adapter folder.")
    base_hash: str = Field(description="Hash of the adapted model's weights.")
    longest_source: int | None = Field(
        default=None,
        description="Length of the longest source the adapter was trained on, in tokens, if known.",
    )


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter instead of a whole model."""
    names = ADAPTER, ADAPTER_WEIGHTS
    return any(os.path.exists(folder / name) for name in names)  # noqa: PTH110 (names may be too long)


def read_adapter_header(folder: Path) -> AdapterHeader:
    """Read the header stored with the weights; ``adapter.json`` may name another place of the model."""
    path = folder / ADAPTER
    stored = _parse(read_metadata(folder / ADAPTER_WEIGHTS).get(HEADER_KEY, "{}"), folder / ADAPTER_WEIGHTS)
    try:
        readable = _parse(read_small(path).decode("utf-8-sig"), path)
    except FileNotFoundError:  # a first save that was interrupted
        return stored
    except (OSError, UnicodeDecodeError) as error:
        reason, remedy = (
            (reason_of(error), remedy_for(error)) if isinstance(error, OSError) else (str(error), COPY_AGAIN)
        )
        raise ArtifactError(f"cannot read {path}: {reason}", remedy) from error
    except DataError as error:
        raise ArtifactError(error.problem, error.remedy) from error
    if readable.save != stored.save:  # a save that was interrupted after it wrote the weights
        return stored
    saved = stored.model_dump()
    for key, value in readable.model_dump(exclude=_EDITABLE).items():
        if value != saved[key]:
            raise ArtifactError(
                f"{path} says {key} = {value!r}, but the adapter was saved with {saved[key]!r}",
                "undo the edit: only base may be changed",
            )
    return readable


def base_folder(folder: Path, header: AdapterHeader) -> Path:
    """Return the folder of the model that an adapter belongs to, if it is there."""
    base = folder_path(folder / header.base)
    edit = f'write its place as "base" into {folder / ADAPTER}'
    if not os.path.isdir(base):  # noqa: PTH112 (pathlib raises an error if the name is too long)
        raise ArtifactError(f"{folder} is an adapter of the model {base}, which is not there", edit)
    require_plain(base)
    return base


def require_plain(folder: Path) -> None:
    """Raise an `ArtifactError` if a model that is to be adapted is an adapter itself."""
    if is_adapter(folder):
        raise ArtifactError(
            f"{folder} is an adapter itself, and cannot be adapted",
            f"merge it first: transduce merge {folder} --out MODEL",
        )


def _parse(text: str, path: Path) -> AdapterHeader:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"cannot read {path}: {error}", COPY_AGAIN) from error
    if not isinstance(data, dict) or "base_hash" not in data:
        raise ArtifactError(f"{path} was not written by transduce", "give another folder")
    version = data.get("format")
    if isinstance(version, int) and version > ADAPTER_FORMAT:
        raise ArtifactError(
            f"{path} has format {version}, but this version of transduce reads only {ADAPTER_FORMAT}",
            "upgrade transduce",
        )
    try:
        return validate(AdapterHeader, data, where=str(path))
    except ConfigError as error:
        raise ArtifactError(error.problem, error.remedy) from error
