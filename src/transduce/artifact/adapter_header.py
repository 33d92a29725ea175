"""The header of an adapter folder: what its weights mean, and which model they belong to.

An adapter folder holds ``adapter.json`` and ``adapter.safetensors``, with the same header in its metadata. It
can be given wherever a model folder can: the model that it adapts is found by its path and its hash.
"""

import os
from pathlib import Path

from pydantic import Field

from transduce.artifact.header_file import HeaderKind, require_unedited
from transduce.config import Settings
from transduce.config.settings import Count, Positive
from transduce.errors import ArtifactError
from transduce.files import folder_path

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


_KIND = HeaderKind(AdapterHeader, "base_hash", ADAPTER_FORMAT)


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter instead of a whole model."""
    names = ADAPTER, ADAPTER_WEIGHTS
    return any(os.path.exists(folder / name) for name in names)  # noqa: PTH110 (names may be too long)


def read_adapter_header(folder: Path) -> AdapterHeader:
    """Read the header stored with the weights; ``adapter.json`` may name another place of the model."""
    path = folder / ADAPTER
    stored, readable = _KIND.read_stored(folder / ADAPTER_WEIGHTS), _KIND.read(path)
    # Without adapter.json, or with another one, a save was interrupted after it wrote the weights.
    if readable is None or readable.save != stored.save:
        return stored
    remedy = "undo the edit: only base may be changed"
    require_unedited(path, readable, stored, editable=_EDITABLE, remedy=remedy)
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
