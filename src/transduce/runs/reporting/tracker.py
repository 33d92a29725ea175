"""Experiment tracking: what TensorBoard and Weights & Biases have in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transduce.models.perplexity import perplexity
from transduce.runs.reporting.record import METRICS, SCORES, read_metrics
from transduce.runs.reporting.throughput import Throughput
from transduce.runs.task import Words
from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation

# The names in metrics.jsonl, and those under which a tracker shows them.
_NAMES = {
    "loss": "train/loss",
    "nll": "train/nll",
    "norm": "train/norm",
    "learning_rate": "train/learning_rate",
    "valid_loss": "valid/nll",
    "valid_accuracy": "valid/accuracy",
    **{f"valid_{name}": f"valid/{name}" for name in SCORES},
}


class Tracker(ABC):
    """A `TrainingCallback` that passes metrics on to a program that draws them."""

    def __init__(self, words: Words) -> None:
        self._words, self._throughput = words, Throughput()

    @abstractmethod
    def write(self, step: int, values: dict[str, float]) -> None:
        """Write values of one step under names such as ``train/nll``."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left and close the connection."""

    def on_message(self, message: str) -> None:  # noqa: B027 (a callback that does nothing)
        """Ignore messages: there is nothing to draw."""

    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Measure the speed; the metrics of single steps are not tracked."""
        self._throughput.measure(progress.tokens)

    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Write what was logged."""
        values = self.values(metrics)
        if "nll" in metrics and (speed := self._throughput.per_second):
            values[f"train/{self._words.unit}s_per_second"] = speed
        self.write(progress.step, values)

    def on_validation(self, progress: Progress, validation: Validation) -> None:
        """Leave the time of the validation out of the speed; its metrics were logged."""
        self._throughput.start(progress.tokens)

    def values(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return logged metrics under the names of a tracker, with NaN for values that were not finite."""
        values = {
            shown: math.nan if metrics[name] is None else float(metrics[name])
            for name, shown in _NAMES.items()
            if name in metrics
        }
        if self._words.perplexity:
            for part in ("train", "valid"):
                if f"{part}/nll" in values:
                    values[f"{part}/perplexity"] = perplexity(values[f"{part}/nll"])
        return values

    def history(self, run_folder: Path, step: int) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield what ``metrics.jsonl`` has logged up to this step: each step and its values."""
        for line in read_metrics(run_folder / METRICS):
            if line["step"] <= step:
                yield line["step"], self.values(line)
