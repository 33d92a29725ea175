"""The model folder: ``config.json`` and ``model.safetensors``. Written whole or not at all."""

import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transduce.config import Settings, TransformerConfig, Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.models.build import build
from transduce.models.transformer import Transformer

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"


class Header(Settings):
    """What ``config.json`` holds."""

    format: int
    transduce: str  # the version that wrote the folder
    model: TransformerConfig
    vocabulary: Vocabulary


def save(model: Transformer, folder: str | Path) -> None:
    """Write a model folder. An older model there is replaced; anything else there is left alone."""
    folder = Path(folder)
    if folder.exists() and not (folder / CONFIG).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder} exists and is not a model folder", "choose another place")
    saving, replaced = _beside(folder, "saving"), _beside(folder, "replaced")
    try:
        shutil.rmtree(saving, ignore_errors=True)
        saving.mkdir(parents=True)
        _write(model, saving)
        if folder.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            folder.rename(replaced)
        saving.rename(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(saving, ignore_errors=True)
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ArtifactError(
            f"cannot write {folder}: {reason}", "make room or choose another place (nothing was replaced)"
        ) from error
    shutil.rmtree(replaced, ignore_errors=True)


def load(folder: str | Path) -> Transformer:
    """Read a model folder; the model is on the CPU and in evaluation mode."""
    folder = Path(folder)
    header = _read_header(folder)
    with torch.device("meta"):  # shapes only: the weights come from the file
        model = build(header.model, header.vocabulary)
    model.load_state_dict(_read_weights(folder / WEIGHTS, model), strict=False, assign=True)
    return model.eval()


def _write(model: Transformer, folder: Path) -> None:
    header = Header(
        format=FORMAT, transduce=version("transduce"), model=model.config, vocabulary=model.vocabulary
    )
    (folder / CONFIG).write_text(header.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
    save_file(_weights(model), folder / WEIGHTS)
    for path in (folder / CONFIG, folder / WEIGHTS, folder):
        _sync(path)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, under its first name: a shared matrix is one tensor."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _sync(path: Path) -> None:
    """See to it that the file or folder is on the disk, not only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(folder: Path, suffix: str) -> Path:
    return folder.absolute().with_name(f".{folder.absolute().name}.{suffix}")


def _read_header(folder: Path) -> Header:
    path = folder / CONFIG
    if not folder.is_dir():
        if _beside(folder, "replaced").is_dir():
            raise ArtifactError(
                f"{folder} is missing: a save was interrupted",
                f"rename {_beside(folder, 'replaced')} to {folder.name}",
            )
        raise ArtifactError(f"{folder} is not a folder", f"give the folder that holds {CONFIG} and {WEIGHTS}")
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(
            f"{folder} is not a model folder: it has no {CONFIG}",
            f"give the folder that holds {CONFIG} and {WEIGHTS}",
        ) from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot read {path}: {error}", "copy the model folder again") from error
    found = data.get("format") if isinstance(data, dict) else None
    if not isinstance(found, int):
        raise ArtifactError(f"{path} was not written by transduce: it has no format number", "check the path")
    if found > FORMAT:
        raise ArtifactError(
            f"{folder} has format {found}, but this version reads up to {FORMAT}", "upgrade transduce"
        )
    try:
        return validate(Header, data, where=str(path))
    except ConfigError as error:
        raise ArtifactError(error.problem, error.remedy) from error


def _read_weights(path: Path, model: nn.Module) -> dict[str, Tensor]:
    if not path.is_file():
        raise ArtifactError(f"{path.parent} has no {WEIGHTS}", "copy the model folder again, whole")
    expected = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        _compare(path, expected, found)
        # Copies: the file stays mapped into memory otherwise, and a change to it would reach the model.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{path} is damaged: {error}", "copy the model folder again") from error


def _compare(path: Path, expected: dict[str, list[int]], found: dict[str, list[int]]) -> None:
    remedy = f"{CONFIG} and {WEIGHTS} must come from the same save"
    for name in sorted(expected.keys() - found.keys()):
        raise ArtifactError(f"{path} lacks {name}, which {CONFIG} calls for", remedy)
    for name in sorted(found.keys() - expected.keys()):
        raise ArtifactError(f"{path} has {name}, which {CONFIG} does not call for", remedy)
    for name, shape in expected.items():
        if found[name] != shape:
            raise ArtifactError(f"{path}: {name} is {found[name]}, but {CONFIG} calls for {shape}", remedy)
