"""Saving and loading an adapter folder: low-rank additions to a model that stays where it is."""

import uuid
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from safetensors import torch as safetensors
from torch import Tensor

from transduce.artifact.adapter_header import (
    ADAPTER,
    ADAPTER_FORMAT,
    ADAPTER_WEIGHTS,
    AdapterHeader,
    base_folder,
    read_adapter_header,
    require_plain,
)
from transduce.artifact.header import read_header, read_model
from transduce.artifact.tensors import hash_tensors
from transduce.artifact.weights import COPY_AGAIN, HASH_KEY, HEADER_KEY, assemble, read_weights
from transduce.config import ModelConfig
from transduce.errors import ArtifactError, reason_of, remedy_for_writing
from transduce.files import folder_path, real_path, write_atomically
from transduce.models.build import build_without_weights
from transduce.models.protocol import Model
from transduce.nn.adapter import adapt, adapter_parameters, initial_adapter, linear_layers, merged_weights


def create_adapter(base: str | Path, folder: Path, *, rank: int, alpha: float, seed: int) -> AdapterHeader:
    """Write a new adapter of all attention and feed-forward blocks of a model; it has no effect yet."""
    base = folder_path(base)
    require_plain(base)
    stored = read_header(base)
    model = build_without_weights(stored.model, stored.vocabulary)
    layers = list(linear_layers(model))
    adapt(model, layers, rank=rank, alpha=alpha)
    header = AdapterHeader(
        format=ADAPTER_FORMAT,
        transduce=version("transduce"),
        save="",
        rank=rank,
        alpha=alpha,
        layers=layers,
        base=str(real_path(base)),
        base_hash=hash_tensors(read_model(base, stored), ""),
    )
    save_adapter(header, initial_adapter(model, seed=seed), folder)
    return header


def save_adapter(
    header: AdapterHeader,
    weights: Mapping[str, Tensor],
    folder: str | Path,
    *,
    longest_source: int | None = None,
) -> None:
    """Write A and B of every adapted layer as an adapter folder, in place of the adapter that is there.

    The old adapter is replaced completely or, on an error, not at all. Other files stay.
    """
    folder = folder_path(folder)
    changes = {"save": uuid.uuid4().hex, "longest_source": longest_source}
    text = header.model_copy(update=changes).model_dump_json(indent=2, exclude_none=True) + "\n"
    tensors = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    metadata = {HEADER_KEY: text, HASH_KEY: hash_tensors(tensors, text)}
    try:
        if not _may_write(folder):
            raise ArtifactError(f"{folder} exists and is not an adapter folder", "choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        # The weights contain their own header: their renaming is the moment of replacement.
        write_atomically(folder / ADAPTER_WEIGHTS, safetensors.save(tensors, metadata))
        write_atomically(folder / ADAPTER, text.encode())
    except OSError as error:
        raise ArtifactError(
            f"cannot write {folder}: {reason_of(error)}", remedy_for_writing(error)
        ) from error


def _may_write(folder: Path) -> bool:
    """Return whether a folder is new, empty, or holds an adapter (or the rest of an interrupted save)."""
    if not folder.exists():
        return True
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    return ADAPTER in names or names <= {ADAPTER_WEIGHTS, f".{ADAPTER_WEIGHTS}.new", f".{ADAPTER}.new"}


def load_adapted(
    folder: str | Path, *, config: ModelConfig | None = None, base: str | Path | None = None
) -> Model:
    """Load an adapter and its model, frozen and in float32, with the additions beside it, for training.

    ``config`` may differ from the model's own in what does not change its weights, such as dropout. ``base``
    is where the model is now, if not where the adapter says.
    """
    folder = folder_path(folder)
    header = read_adapter_header(folder)
    place = base_folder(folder, header) if base is None else folder_path(base)
    require_plain(place)
    stored = read_header(place)
    frozen = read_model(place, stored)
    if hash_tensors(frozen, "") != header.base_hash:
        raise ArtifactError(
            f"{place} is not the model that the adapter {folder} was trained with: its weights have another "
            "hash",
            "restore that model, or train the adapter again",
        )
    model = build_without_weights(config or stored.model, stored.vocabulary)
    try:
        adapt(model, set(header.layers), rank=header.rank, alpha=header.alpha)
    except ValueError as error:
        raise ArtifactError(f"{folder} does not fit {place}: {error}", COPY_AGAIN) from error
    shapes = {name: tuple(parameter.shape) for name, parameter in adapter_parameters(model).items()}
    trained = read_weights(folder / ADAPTER_WEIGHTS, shapes, hashed=True)
    weights = {name: tensor.float() for name, tensor in {**frozen, **trained}.items()}
    model.load_state_dict(weights, strict=False, assign=True)
    return model.eval()


def load_merged(folder: str | Path, *, base: str | Path | None = None) -> Model:
    """Load an adapter and its model as a plain model, in float32 and in evaluation mode."""
    model = load_adapted(folder, base=base)
    weights = merged_weights(model, dict(model.named_parameters()))
    return assemble(
        model.config, model.vocabulary, {name: tensor.detach() for name, tensor in weights.items()}
    )
