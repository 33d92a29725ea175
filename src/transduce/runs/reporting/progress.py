"""The progress of a run: a status line on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console

from transduce.models.perplexity import perplexity
from transduce.runs.reporting.record import SCORES
from transduce.runs.reporting.throughput import Throughput
from transduce.runs.task import TRANSLATION, Words
from transduce.terminal import Column, StatusLine, format_duration, print_line
from transduce.training.callback import TrainingCallback
from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation


class ProgressDisplay:
    """A `TrainingCallback` that shows the loss, the learning rate, the speed and the time left.

    The loss is the negative log-likelihood (NLL) without label smoothing, in training as in validation.
    """

    def __init__(
        self, console: Console, steps: int, words: Words = TRANSLATION.words, *, minutes: float | None = None
    ) -> None:
        """``minutes`` is the time limit of the run, if it has one."""
        self._console, self._steps, self._words, self._minutes = console, steps, words, minutes
        self._status = StatusLine(console, "step", steps)
        self._throughput = Throughput()
        self._started = time.monotonic()
        self._steps_taken = 0

    def __enter__(self) -> "ProgressDisplay":
        self._status.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.__exit__(kind, error, trace)
        if error is None and self._steps_taken:
            self.on_message(self._summary())

    def on_message(self, message: str) -> None:
        """Print a message, above the status line if there is one."""
        print_line(self._console, message)

    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Update the status line."""
        if not self._steps_taken:
            self._started = time.monotonic()
            if self._minutes is not None:
                self._status.deadline = self._started + 60 * self._minutes - progress.seconds
        self._steps_taken += 1
        self._throughput.measure(progress.tokens)
        self._status.update(progress.step, self._columns(metrics))

    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Print a line of training metrics where there is no status line."""
        if "nll" in metrics and not self._console.is_terminal:
            columns = [f"step {progress.step:,}/{self._steps:,}"]
            columns += [column.text for column in self._columns(metrics)]
            columns += [self._status.time_left] if self._status.time_left else []
            self.on_message("  ".join(columns))

    def on_validation(self, progress: Progress, validation: Validation) -> None:
        """Print the result of a validation."""
        measure = f"perplexity {format_perplexity(validation.loss)}, " if self._words.perplexity else ""
        scores = "".join(
            f", {SCORES.get(name, name)} {score:.1f}" for name, score in validation.scores.items()
        )
        best = ", new best" if progress.best_step == progress.step else ""
        self.on_message(
            f"step {progress.step:,}: validation NLL {validation.loss:.4f}, {measure}"
            f"accuracy {validation.accuracy:.1%}{scores}{best}"
        )
        self._throughput.start(progress.tokens)

    def _columns(self, metrics: dict[str, float]) -> list[Column]:
        columns = [Column(f"NLL {metrics['nll']:.3f}", rank=2)]
        if self._words.perplexity:
            columns.append(Column(f"perplexity {format_perplexity(metrics['nll'])}", rank=5))
        columns.append(Column(f"learning rate {metrics['learning_rate']:.1e}", rank=6))
        if speed := self._throughput.per_second:
            columns.append(Column(f"{speed:,.0f} {self._words.unit}s/s", rank=4))
        return columns

    def _summary(self) -> str:
        steps = "1 step" if self._steps_taken == 1 else f"{self._steps_taken:,} steps"
        duration = format_duration(time.monotonic() - self._started)
        speed = self._throughput.average
        per_second = f", {speed:,.0f} {self._words.unit}s per second" if speed else ""
        return f"trained {steps} in {duration}{per_second}"


def format_perplexity(nll: float) -> str:
    """Return the perplexity of a negative log-likelihood in as few digits as are of interest."""
    value = perplexity(nll)
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


class CallbackGroup:
    """Several training callbacks as one."""

    def __init__(self, *callbacks: TrainingCallback) -> None:
        self._callbacks = callbacks

    def on_message(self, message: str) -> None:
        """Pass a message on."""
        for callback in self._callbacks:
            callback.on_message(message)

    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Pass a step on."""
        for callback in self._callbacks:
            callback.on_step(progress, metrics)

    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Pass logged metrics on."""
        for callback in self._callbacks:
            callback.on_log(progress, metrics)

    def on_validation(self, progress: Progress, validation: Validation) -> None:
        """Pass a validation on."""
        for callback in self._callbacks:
            callback.on_validation(progress, validation)
