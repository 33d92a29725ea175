"""What a run shows while it goes: a bar on a terminal, plain lines elsewhere."""

import math
import time
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from transduce.training import checkpoint
from transduce.training.objectives.translation import TEXT, Words
from transduce.training.trainer import TrainingCallback
from transduce.training.validation import Validation

A_MOMENT = 0.5  # seconds between two movements of the bar


class Display:
    """Loss, perplexity, learning rate, tokens a second and the time that is left."""

    def __init__(self, console: Console, steps: int, words: Words = TEXT) -> None:
        self._console, self._words = console, words
        self._bar = Progress(
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=steps, figures="")
        self._first: tuple[float, int] | None = None  # time and step
        self._last: tuple[float, int] | None = None  # time and tokens
        self._steps = steps

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, message: str) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)

    def on_step(self, progress: checkpoint.Progress, metrics: dict[str, float]) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        self._last = self._last or (time.monotonic(), progress.tokens)
        if not self._console.is_terminal:
            return
        self._bar.update(self._task, completed=progress.step)
        if time.monotonic() - self._last[0] > A_MOMENT or progress.step >= self._steps:
            self._bar.update(self._task, figures=self._figures(progress, metrics))

    def on_log(self, progress: checkpoint.Progress, metrics: dict[str, float]) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        if "loss" in metrics and not self._console.is_terminal:
            figures = self._figures(progress, metrics)
            self.say(f"step {progress.step}/{self._steps}  {figures}{self._time_left(progress.step)}")
            self._first = self._first or (time.monotonic(), progress.step)

    def _figures(self, progress: checkpoint.Progress, metrics: dict[str, float]) -> str:
        now = time.monotonic()
        then, tokens = self._last or (now, progress.tokens)
        self._last = (now, progress.tokens)
        speed = (progress.tokens - tokens) / max(now - then, 1e-9)
        perplexity = (
            f"perplexity {math.exp(min(metrics['nll'], 100)):.1f}  " if self._words.perplexity else ""
        )
        return (
            f"loss {metrics['loss']:.3f}  {perplexity}"
            f"rate {metrics['learning_rate']:.1e}  {speed:,.0f} {self._words.unit}s/s"
        )

    def _time_left(self, step: int) -> str:
        if self._first is None:
            return ""
        then, begin = self._first
        seconds = (time.monotonic() - then) / (step - begin) * (self._steps - step)
        return f"  {timedelta(seconds=round(seconds))} left"

    def on_validation(self, progress: checkpoint.Progress, validation: Validation) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        best = "  (best so far)" if progress.best_step == progress.step else ""
        known = f"perplexity {validation.perplexity:.2f}, " if self._words.perplexity else ""
        self.say(
            f"step {progress.step:,}: validation loss {validation.loss:.4f}, {known}"
            f"accuracy {validation.accuracy:.1%}{best}"
        )


class Callbacks:
    """Several watchers as one."""

    def __init__(self, *watchers: TrainingCallback) -> None:
        self._watchers = watchers

    def say(self, message: str) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        for watcher in self._watchers:
            watcher.say(message)

    def on_step(self, progress: checkpoint.Progress, metrics: dict[str, float]) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        for watcher in self._watchers:
            watcher.on_step(progress, metrics)

    def on_log(self, progress: checkpoint.Progress, metrics: dict[str, float]) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        for watcher in self._watchers:
            watcher.on_log(progress, metrics)

    def on_validation(self, progress: checkpoint.Progress, validation: Validation) -> None:
        """See `transduce.training.trainer.TrainingCallback`."""
        for watcher in self._watchers:
            watcher.on_validation(progress, validation)
