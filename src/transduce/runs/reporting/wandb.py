"""A run's metrics in Weights & Biases."""

import os
from pathlib import Path

from transduce.config import RunConfig
from transduce.errors import DependencyError, TrainingError, reason_of, remedy_for_writing
from transduce.files import real_path
from transduce.runs.reporting.tracker import Tracker
from transduce.runs.task import Words


class WeightsAndBiases(Tracker):
    """A `TrainingCallback` that logs to Weights & Biases, or to ``RUN/wandb`` if WANDB_MODE is offline."""

    def __init__(self, run_folder: Path, step: int, words: Words, config: RunConfig) -> None:
        """Continue at ``step``, with the same W&B run as before, and fill in what it does not have yet.

        The environment variables of W&B count: WANDB_PROJECT ("transduce" by default), WANDB_MODE, ….
        """
        super().__init__(words)
        try:
            import wandb
        except ImportError:
            raise DependencyError("--wandb needs the package wandb", "run: pip install wandb") from None
        folder = run_folder / "wandb"
        id_file = folder / "run-id"
        try:
            folder.mkdir(exist_ok=True)
            self._run = wandb.init(
                dir=str(run_folder),
                project=os.environ.get("WANDB_PROJECT", "transduce"),
                name=real_path(run_folder).name,
                id=id_file.read_text(encoding="utf-8").strip() if id_file.exists() else None,
                resume="allow",
                config=config.model_dump(exclude_none=True),
                settings=wandb.Settings(console="off"),  # the status line is not to be logged
            )
            id_file.write_text(f"{self._run.id}\n", encoding="utf-8")
        except OSError as error:
            raise TrainingError(
                f"cannot write {folder}: {reason_of(error)}", remedy_for_writing(error)
            ) from error
        except wandb.Error as error:
            raise TrainingError(
                f"Weights & Biases does not start: {error}", "run: wandb login, or set WANDB_MODE=offline"
            ) from error
        for logged, values in self.history(run_folder, step):
            self.write(logged, values)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Log the values of one step, unless W&B has them from before the run was resumed."""
        if step >= self._run.step:
            self._run.log(values, step=step)

    def close(self) -> None:
        """Upload what is left and finish the W&B run."""
        self._run.finish()
