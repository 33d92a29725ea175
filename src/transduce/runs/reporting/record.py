"""The record of a run, read back from its folder: configuration, metrics and progress."""

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from transduce.config import RunConfig, read_toml
from transduce.data.prepared_tokenizer import load_prepared_tokenizer
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError, TrainingError, reason_of
from transduce.files import MANIFEST, folder_path, read_small, real_path
from transduce.models.perplexity import perplexity
from transduce.runs.folder import RUN
from transduce.runs.task import Data, Task, task_for
from transduce.training import checkpoint
from transduce.training.checkpoint import Progress

METRICS = "metrics.jsonl"
SCORES = {"bleu": "BLEU", "chrf": "chrF"}  # validation scores by their names in the configuration

_LARGEST_METRICS = 1 << 30  # bytes


@dataclass(frozen=True)
class ValidationPoint:
    """The result of the validation at one step."""

    step: int
    nll: float  # negative log-likelihood in nats per token, text or image
    accuracy: float
    scores: dict[str, float] = field(default_factory=dict)  # BLEU and chrF, if they were computed

    @property
    def perplexity(self) -> float:
        """The exponential of the negative log-likelihood."""
        return perplexity(self.nll)


@dataclass(frozen=True)
class RunRecord:
    """A run, finished or not. What its folder no longer holds is ``None``."""

    folder: Path
    config: RunConfig
    tokenizer: TokenizerPair | None  # ``None`` for images
    metrics: list[dict[str, Any]]
    progress: Progress | None  # at the newest checkpoint
    checkpoints: int
    train: Data | None
    valid: Data | None

    @property
    def name(self) -> str:
        """The name of the run: that of its folder."""
        return real_path(self.folder).name

    @property
    def task(self) -> Task:
        """The kind of run."""
        return task_for(self.config.model)

    @property
    def step(self) -> int:
        """The last step in the metrics or checkpoints."""
        last: int = max(line["step"] for line in self.metrics)
        return max(last, self.progress.step) if self.progress else last

    @property
    def finished(self) -> bool:
        """Whether the run has reached its end and was not extended since."""
        return self.progress is not None and self.progress.finished and self.progress.step == self.step

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps and values of one metric, with NaN for values that are not finite."""
        lines = [line for line in self.metrics if isinstance(line.get(name), (int, float))]
        values = [float(line[name]) for line in lines]
        return [line["step"] for line in lines], [v if math.isfinite(v) else math.nan for v in values]

    @property
    def validations(self) -> list[ValidationPoint]:
        """The validations in order, without those whose loss is not finite."""
        accuracies = dict(zip(*self.series("valid_accuracy"), strict=True))
        scores = {name: dict(zip(*self.series(f"valid_{name}"), strict=True)) for name in SCORES}
        return [
            ValidationPoint(
                step,
                nll,
                accuracies.get(step, math.nan),
                {name: by_step[step] for name, by_step in scores.items() if step in by_step},
            )
            for step, nll in zip(*self.series("valid_loss"), strict=True)
            if not math.isnan(nll)
        ]

    @property
    def best(self) -> ValidationPoint | None:
        """The best validation by the metric that the run is configured to use."""
        metric = self.config.training.validation_metric
        if metric == "loss":
            return min(self.validations, key=lambda point: point.nll, default=None)
        return max(self.validations, key=lambda point: point.scores.get(metric, -math.inf), default=None)


def read_record(folder: str | Path) -> RunRecord:
    """Read the record of the run in ``folder``; a `TrainingError` if there is no run, or no metrics yet."""
    folder = folder_path(folder)
    if not (folder / RUN).exists():
        nearby = [other for other in (folder.parent, folder / "run") if (other / METRICS).exists()]
        remedy = f"did you mean {nearby[0]}?" if nearby else "use the --out folder of a training command"
        raise TrainingError(f"{folder} is not a run folder: it contains no {RUN}", remedy)
    config = read_toml(folder / RUN)
    task = task_for(config.model)
    metrics = read_metrics(folder / METRICS)
    if not metrics:
        raise TrainingError(
            f"{folder} has no metrics yet", f"train first: transduce {task.command} --resume --out {folder}"
        )
    checkpoints = checkpoint.list_checkpoints(folder / "checkpoints")
    return RunRecord(
        folder,
        config,
        _load_tokenizer(folder) if task.has_tokenizer else None,
        metrics,
        _read_progress(checkpoints),
        len(checkpoints),
        _open_data(task, folder, "train"),
        _open_data(task, folder, "valid"),
    )


def _load_tokenizer(folder: Path) -> TokenizerPair:
    """Load the tokenizer, verified unless the folder no longer holds its hashes."""
    return (load_prepared_tokenizer if (folder / MANIFEST).exists() else TokenizerPair.load)(folder)


def _open_data(task: Task, folder: Path, part: str) -> Data | None:
    path = task.data_at(folder, part)
    return task.open_data(path) if path.exists() else None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl``, without an incomplete last one, which a killed run leaves."""
    try:
        lines = read_small(path, _LARGEST_METRICS).decode("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TrainingError(f"cannot read {path}: {reason_of(error)}", "make the file readable") from error
    # The last element is empty, or an incomplete line.
    return [_parse_metrics(line, f"{path}, line {number}") for number, line in enumerate(lines[:-1], 1)]


def _parse_metrics(line: str, where: str) -> dict[str, Any]:
    try:
        metrics = json.loads(line)
    except (ValueError, RecursionError):
        metrics = None
    if not isinstance(metrics, dict) or type(metrics.get("step")) is not int:
        raise TrainingError(f"{where}: not a JSON object with a step", "delete that line")
    return metrics


def _read_progress(checkpoints: list[Path]) -> Progress | None:
    """Return the progress in the newest checkpoint that can be read."""
    known = {field.name for field in fields(Progress)}
    for path in reversed(checkpoints):
        try:
            state = json.loads(read_small(path / checkpoint.STATE))
            return Progress(**{name: value for name, value in state.items() if name in known})
        except (OSError, ValueError, AttributeError, DataError):
            continue
    return None
