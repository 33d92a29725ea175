"""Checkpoints: folders that hold everything a run needs to continue as if it had never stopped.

A checkpoint is written to a temporary folder, hashed, synced to the disk and then renamed. A folder named
``step-00001000`` is therefore complete, and its hashes tell if it was damaged later.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from transduce.errors import CheckpointError, reason_of
from transduce.files import find_damage, read_small, sync, write_manifest

MODEL, OPTIMIZER, AVERAGE = "model.safetensors", "optimizer.safetensors", "average.safetensors"
STATE = "state.json"
_LARGEST_STATE = 1 << 20  # bytes
_GENERATOR = "generator."
_UNFINISHED = ".saving-"  # followed by the name of the checkpoint
_NAME = re.compile(r"step-(\d{8})")


@dataclass
class Progress:
    """How far a run has come: the part of a checkpoint that is not tensors."""

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    best_loss: float = float("inf")  # the lowest validation loss
    best_metric: str = "loss"  # which figure decides what the best model is
    best_score: float = float("-inf")  # its best value so far; of the loss, the negative
    best_step: int = 0
    validations_without_improvement: int = 0
    learning_rate_halvings: int = 0  # by the plateau schedule
    batch_splits: int = 1  # the parts in which every batch is computed, more than 1 if memory was exhausted
    skipped_in_a_row: int = 0
    skipped_steps: int = 0  # whose loss or gradient was not finite
    tokens: int = 0
    seconds: float = 0.0
    metrics_bytes: int = 0  # size of metrics.jsonl
    time_is_up: bool = False
    finished: bool = False
    planned_steps: int = 0  # configured steps when the run was last validated


@dataclass
class Snapshot:
    """All tensors of a run at one step, by name."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # by parameter/kind
    generators: list[Tensor]  # random states, one per process
    average: dict[str, Tensor]  # the moving average of the weights, if there is one


def save(folder: Path, snapshot: Snapshot, progress: Progress) -> Path:
    """Write a checkpoint into ``folder`` and return its path."""
    path = folder / f"step-{progress.step:08d}"
    temporary = folder / f"{_UNFINISHED}{path.name}"
    generators = {f"{_GENERATOR}{rank}": state for rank, state in enumerate(snapshot.generators)}
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(snapshot.model, temporary / MODEL)
        save_file({**snapshot.optimizer, **generators}, temporary / OPTIMIZER)
        if snapshot.average:
            save_file(snapshot.average, temporary / AVERAGE)
        (temporary / STATE).write_text(json.dumps(asdict(progress), indent=2) + "\n", encoding="utf-8")
        for (
            file
        ) in temporary.iterdir():  # safetensors makes files for their owner only; the umask should decide
            file.chmod((temporary / STATE).stat().st_mode)
        write_manifest(temporary, [*temporary.iterdir()])
        for file in (*temporary.iterdir(), temporary):
            sync(file)
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
        sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise CheckpointError(
            f"cannot write {path}: {reason}",
            "free some disk space, then continue with --resume: earlier checkpoints are intact",
        ) from error
    return path


def load(path: Path) -> tuple[Snapshot, Progress]:
    """Read what `save` wrote."""
    try:
        tensors = load_file(path / OPTIMIZER)
        names = sorted((name for name in tensors if name.startswith(_GENERATOR)), key=lambda n: (len(n), n))
        generators = [tensors.pop(name) for name in names]
        average = load_file(path / AVERAGE) if (path / AVERAGE).exists() else {}
        progress = Progress(**json.loads(read_small(path / STATE, _LARGEST_STATE)))
        return Snapshot(load_file(path / MODEL), tensors, generators, average), progress
    except (OSError, ValueError, TypeError, RecursionError, SafetensorError) as error:
        # Its hashes fit, but it was not written by this version.
        raise CheckpointError(
            f"{path} cannot be read: {error}", f"remove it, or {_start_anew(path.parents[1])}"
        ) from error


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))


def step_of(path: Path) -> int:
    """Return the step at which a checkpoint was saved."""
    return int(path.name.removeprefix("step-"))


def prune(folder: Path, *, keep: int, every: int) -> None:
    """Keep the newest checkpoint, and the last ``keep − 1`` before it that were saved at a validation.

    Validations are made every ``every`` steps. A checkpoint saved in between, because of its age or because
    the run was stopped, is removed as soon as there is a newer one, so that it does not change which
    checkpoints the run keeps.
    """
    *older, _ = list_checkpoints(folder)
    regular = [path for path in older if step_of(path) % every == 0]
    kept = regular[-(keep - 1) :] if keep > 1 else []
    for path in older:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what is left of checkpoints during whose saving a process was killed."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def remove_newer(path: Path) -> None:
    """Remove the checkpoints newer than this one, which a run resumes from: they are damaged."""
    for other in list_checkpoints(path.parent):
        if other.name > path.name:
            shutil.rmtree(other, ignore_errors=True)


def newest_intact(folder: Path) -> Path | None:
    """Return the newest checkpoint that is not damaged, or ``None`` if there is no checkpoint at all."""
    checkpoints = list_checkpoints(folder)
    for path in reversed(checkpoints):
        if is_intact(path):
            return path
    if checkpoints:
        raise CheckpointError(f"every checkpoint in {folder} is damaged", _start_anew(folder.parent))
    return None


def _start_anew(run_folder: Path) -> str:
    """Return what to do with a run that cannot be resumed."""
    best = run_folder / "best"
    return f"start a new run{f' with --from {best}' if best.exists() else ''}"


def is_intact(path: Path) -> bool:
    """Tell whether all files of a checkpoint are present and have the hashes they were saved with."""
    try:
        return find_damage(path, [path / name for name in (MODEL, OPTIMIZER, STATE)]) is None
    except FileNotFoundError:  # the manifest
        return False
