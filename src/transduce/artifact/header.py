"""The header of a model folder: what the weights mean."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from torch import Tensor

from transduce.artifact.adapter_header import base_folder, is_adapter, read_adapter_header
from transduce.artifact.header_file import HeaderKind, require_unedited
from transduce.artifact.weights import COPY_AGAIN, WEIGHTS, expected_shapes, read_weights
from transduce.config import ModelConfig, Settings, Vocabulary
from transduce.errors import ArtifactError, ConfigError
from transduce.files import folder_path

FORMAT = 2
INT8_FORMAT = 3  # with matrices in 8 bits, which older versions cannot read
FIRST_HASHED_FORMAT = 2
CONFIG = "config.json"
_IMPORT = "import a model of another toolkit first: transduce import"
# Settings of a model that may be edited in config.json, because they do not change what the weights mean.
EDITABLE = {"dropout", "attention_dropout", "activation_dropout"}
_EDITABLE = {"transduce", *(f"model.{name}" for name in EDITABLE)}


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


_KIND = HeaderKind(Header, "transduce", INT8_FORMAT)


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
    readable = _KIND.read(path)
    if readable is None:
        is_checkpoint = folder.parent.name == "checkpoints"
        # Without config.json, a model folder is a first save that was interrupted.
        if (folder / WEIGHTS).exists() and not is_checkpoint:
            return read_stored_header(folder / WEIGHTS)
        raise _no_model(folder)
    stored = read_stored_header(folder / WEIGHTS)
    if readable.save != stored.save:  # a save that was interrupted after it wrote the weights
        return stored
    remedy = "undo the edit, or save the model again"
    require_unedited(path, readable, stored, editable=_EDITABLE, remedy=remedy)
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
    return _KIND.read_stored(path)


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
