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

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.machine import sync

MODEL, OPTIMIZER, AVERAGE = "model.safetensors", "optimizer.safetensors", "average.safetensors"
STATE, MANIFEST = "state.json", "manifest.json"
_GENERATOR = "generator."
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
    rate_halvings: int = 0  # of the plateau schedule
    parts: int = 1  # every batch is computed in so many, since memory did not suffice for less
    skipped_in_a_row: int = 0
    skipped_steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    metrics_bytes: int = 0
    time_is_up: bool = False
    finished: bool = False
    planned_steps: int = 0  # when it finished


@dataclass
class Snapshot:
    """All numbers of a run at one moment, by name."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # parameter/kind
    generators: list[Tensor]  # one a process
    average: dict[str, Tensor]  # the moving one, if there is one


def save(folder: Path, snapshot: Snapshot, progress: Progress) -> Path:
    """Write ``folder/step-…``; gives its path."""
    place = folder / f"step-{progress.step:08d}"
    new = folder / f".saving-{place.name}"
    generators = {f"{_GENERATOR}{rank}": state for rank, state in enumerate(snapshot.generators)}
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        save_file(snapshot.model, new / MODEL)
        save_file({**snapshot.optimizer, **generators}, new / OPTIMIZER)
        if snapshot.average:
            save_file(snapshot.average, new / AVERAGE)
        (new / STATE).write_text(json.dumps(asdict(progress), indent=2) + "\n", encoding="utf-8")
        hashes = {path.name: _hash(path) for path in sorted(new.iterdir())}
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


def load(path: Path) -> tuple[Snapshot, Progress]:
    """What `save` wrote."""
    tensors = load_file(path / OPTIMIZER)
    names = sorted((name for name in tensors if name.startswith(_GENERATOR)), key=lambda n: (len(n), n))
    generators = [tensors.pop(name) for name in names]
    average = load_file(path / AVERAGE) if (path / AVERAGE).exists() else {}
    progress = Progress(**json.loads((path / STATE).read_text(encoding="utf-8")))
    return Snapshot(load_file(path / MODEL), tensors, generators, average), progress


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


def forget_after(path: Path) -> None:
    """Remove newer checkpoints than this one, which a run goes on from: they are damaged."""
    for other in list_checkpoints(path.parent):
        if other.name > path.name:
            shutil.rmtree(other, ignore_errors=True)


def newest(folder: Path, complain: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose hashes are right; ``complain`` hears of those that are not."""
    found = list_checkpoints(folder)
    for path in reversed(found):
        if is_intact(path):
            return path
        if path != found[0]:
            complain(f"{path} is damaged: going on from the checkpoint before it")
    if found:
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged",
            f"start a new run from {folder.parent / 'best'} with --from",
        )
    return None


def is_intact(path: Path) -> bool:
    """All files are there and have the hashes they were saved with."""
    try:
        hashes = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return {MODEL, OPTIMIZER, STATE} <= set(hashes) and all(
            _hash(path / name) == digest for name, digest in hashes.items()
        )
    except (OSError, ValueError, TypeError):
        return False


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
