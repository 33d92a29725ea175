"""A run's figures for TensorBoard, in ``RUN/tensorboard``."""

import math
import time
from pathlib import Path

from transduce.errors import DependencyError, TrainingError
from transduce.training.checkpoint import Progress
from transduce.training.objectives.objective import Words
from transduce.training.objectives.translation import TEXT
from transduce.training.validation import Validation


class TensorBoard:
    """A `TrainingCallback` that writes scalars, for ``tensorboard --logdir RUN``."""

    def __init__(self, folder: Path, step: int = 0, words: Words = TEXT) -> None:
        """``step`` is where the run goes on: what an earlier process wrote after it is hidden."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise DependencyError(
                "tracking needs tensorboard, which is not installed", "run: pip install 'transduce[track]'"
            ) from None
        self._words = words
        place = folder / "tensorboard"
        try:
            # Hides this step too: what was written at the checkpoint itself is still right.
            self._writer = SummaryWriter(str(place), purge_step=step + 1)
        except OSError as error:
            raise TrainingError(
                f"cannot write {place}: {error.strerror}", "check the space and your rights there"
            ) from error
        self._last: tuple[float, int] | None = None  # time and tokens

    def on_message(self, message: str) -> None:
        """Words are for the terminal: there is nothing to draw."""

    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None:
        """A point for every step would be too many."""

    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        if "loss" not in metrics:  # of a validation, which `validated` hears of too
            return
        figures = {**metrics}
        if self._words.perplexity:
            figures["perplexity"] = math.exp(min(metrics["nll"], 100))
        now = time.monotonic()
        if self._last is not None:
            then, tokens = self._last
            figures[f"{self._words.unit}s_per_second"] = (progress.tokens - tokens) / max(now - then, 1e-9)
        self._last = (now, progress.tokens)
        self._write("train", figures, progress.step)

    def on_validation(self, progress: Progress, validation: Validation) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        figures = {"loss": validation.loss, "accuracy": validation.accuracy}
        if self._words.perplexity:
            figures["perplexity"] = validation.perplexity
        self._write("valid", figures, progress.step)
        self._last = (time.monotonic(), progress.tokens)  # validating is no training time

    def close(self) -> None:
        """Write what is left and close the file."""
        self._writer.close()

    def _write(self, part: str, figures: dict[str, float], step: int) -> None:
        for name, figure in figures.items():
            self._writer.add_scalar(f"{part}/{name}", figure, step)
        # A killed run goes on after its checkpoint: what was only in memory would be missing for good.
        self._writer.flush()
