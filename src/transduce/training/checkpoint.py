"""Checkpoints: all that a run needs to go on as if it had never stopped.

A checkpoint is written beside its place, hashed, synced to the disk and then renamed: a folder called
``step-00001000`` is whole, or its hashes say that it is not, and the one before it is used.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transduce.artifact import sync
from transduce.errors import CheckpointError

MODEL, OPTIMIZER, STATE, MANIFEST = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
)
_NAME = re.compile(r"step-(\d{8})")


@dataclass
class Progress:
    """Where a run is."""

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    best_loss: float = float("inf")
    best_step: int = 0
    validations_without_progress: int = 0
    bad_steps_in_a_row: int = 0
    bad_steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    metrics_bytes: int = 0
    finished: bool = False


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    progress: Progress,
) -> Path:
    """Write ``folder/step-…``; gives its path."""
    place = folder / f"step-{progress.step:08d}"
    new = folder / f".saving-{place.name}"
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        save_file(_parameters(model), new / MODEL)
        save_file(
            {**_optimizer_tensors(model, optimizer), "generator": generator.get_state()}, new / OPTIMIZER
        )
        (new / STATE).write_text(json.dumps(asdict(progress), indent=2) + "\n", encoding="utf-8")
        hashes = {name: _hash(new / name) for name in (MODEL, OPTIMIZER, STATE)}
        (new / MANIFEST).write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")
        for path in (*new.iterdir(), new):
            sync(path)
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
        sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(new, ignore_errors=True)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(
            f"cannot write {place}: {reason}",
            "make room, then go on with --resume: earlier checkpoints are whole",
        ) from error
    return place


def list_checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))


def forget(folder: Path, *, keep: int, every: int) -> None:
    """Keep the newest checkpoint, and before it ``keep − 1`` of those made every so many steps.

    One made because the run was interrupted goes as soon as there is a newer one: an interrupted run leaves
    the same checkpoints as one that was not.
    """
    *older, _ = list_checkpoints(folder)
    regular = [path for path in older if int(path.name.removeprefix("step-")) % every == 0]
    kept = regular[-(keep - 1) :] if keep > 1 else []
    for path in older:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def newest(folder: Path, complain: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose hashes are right; ``complain`` hears of those that are not."""
    for path in reversed(list_checkpoints(folder)):
        if is_whole(path):
            return path
        complain(f"{path} is damaged: going on from the checkpoint before it")
    return None


def is_whole(path: Path) -> bool:
    """All files are there and have the hashes they were saved with."""
    try:
        hashes = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return set(hashes) == {MODEL, OPTIMIZER, STATE} and all(
            _hash(path / n) == h for n, h in hashes.items()
        )
    except (OSError, ValueError, TypeError):
        return False


def restore(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> Progress:
    """Put everything back as it was."""
    tensors = load_file(path / OPTIMIZER)
    generator.set_state(tensors.pop("generator"))
    read_parameters(path, model)
    names = {name: index for index, (name, _) in enumerate(model.named_parameters())}
    state: dict[int, dict[str, Tensor]] = {index: {} for index in names.values()}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition("/")
        state[names[name]][kind] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {k: v for k, v in state.items() if v}, "param_groups": groups})
    return Progress(**json.loads((path / STATE).read_text(encoding="utf-8")))


def read_parameters(path: Path, model: nn.Module) -> None:
    """Only the model of a checkpoint."""
    tensors = load_file(path / MODEL)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def average_into(paths: list[Path], model: nn.Module) -> None:
    """The mean of several checkpoints (section 6.1: the paper averages its last ones), summed in float64."""
    sums: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_file(path / MODEL).items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(sums[name] / len(paths))


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """``parameter/kind`` → tensor."""
    state: dict[Any, dict[str, Tensor]] = optimizer.state
    return {
        f"{name}/{kind}": tensor.detach().contiguous()
        for name, parameter in model.named_parameters()
        for kind, tensor in state.get(parameter, {}).items()
    }


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
