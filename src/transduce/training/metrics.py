"""The log of a run's metrics: ``metrics.jsonl``, one JSON object per line."""

import json
import math
from pathlib import Path

from transduce.errors import TrainingError, reason_of
from transduce.files import require_own_file, sync
from transduce.training.checkpoint import Progress

FILE = "metrics.jsonl"


class MetricsLog:
    """Appends metrics to a run's log, and removes those that a resumed run will write again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def append(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Write one line; values that are not finite become null."""
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = {"step": progress.step, "epoch": progress.epoch, **finite}
        require_own_file(self.path)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise TrainingError(
                f"cannot write {self.path}: {reason_of(error)}",
                "free some disk space, then continue with --resume",
            ) from error

    def sync(self) -> int:
        """Make sure that all lines are on the disk; return their size in bytes."""
        if not self.path.exists():
            return 0
        sync(self.path)
        return self.path.stat().st_size

    def truncate(self, size: int) -> None:
        """Remove what was logged after the checkpoint that a run resumes from."""
        require_own_file(self.path)
        if self.path.exists():
            with self.path.open("r+b") as file:
                file.truncate(min(self.path.stat().st_size, size))
