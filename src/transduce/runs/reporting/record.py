"""What a run wrote down about itself, read back from its folder."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from transduce.config import BERTConfig, GPTConfig, RunConfig, ViTConfig, read_toml
from transduce.data.images import Images
from transduce.data.plain_text import SIDE
from transduce.data.prepared import Pairs, Sequences
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import TrainingError
from transduce.training import checkpoint
from transduce.training.checkpoint import Progress
from transduce.training.objectives.image_classes import IMAGES
from transduce.training.objectives.objective import Words
from transduce.training.objectives.single_text import PLAIN_TEXT
from transduce.training.objectives.text_classes import CLASSES
from transduce.training.objectives.translation import TEXT

RUN, METRICS = "run.toml", "metrics.jsonl"
_COMMANDS = {"gpt": "lm train", "bert": "mlm train", "vit": "vision train"}


@dataclass(frozen=True)
class Measured:
    """One validation."""

    step: int
    loss: float
    accuracy: float

    @property
    def perplexity(self) -> float:
        """e to the loss."""
        return math.exp(min(self.loss, 100))


@dataclass(frozen=True)
class Record:
    """A run, finished or not. What its folder no longer holds is ``None``."""

    folder: Path
    config: RunConfig
    tokenizer: TokenizerPair | None  # of a run on text
    metrics: list[dict[str, Any]]
    progress: Progress | None  # at the newest checkpoint
    checkpoints: int
    train: Pairs | Sequences | Images | None
    valid: Pairs | Sequences | Images | None

    @property
    def name(self) -> str:
        """What the run is called: its folder's name."""
        return self.folder.resolve().name

    @property
    def words(self) -> Words:
        """How the run speaks of its data."""
        model = self.config.model
        if isinstance(model, BERTConfig) and model.classes:
            return CLASSES
        if isinstance(model, GPTConfig | BERTConfig):
            return PLAIN_TEXT
        return IMAGES if isinstance(model, ViTConfig) else TEXT

    @property
    def step(self) -> int:
        """The last one heard of."""
        last: int = max(line["step"] for line in self.metrics)
        return max(last, self.progress.step) if self.progress else last

    @property
    def finished(self) -> bool:
        """The run came to its end, and was not extended since."""
        return self.progress is not None and self.progress.finished and self.progress.step == self.step

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of one metric; what is not a finite number is NaN."""
        lines = [line for line in self.metrics if isinstance(line.get(name), (int, float))]
        values = [float(line[name]) for line in lines]
        return [line["step"] for line in lines], [v if math.isfinite(v) else math.nan for v in values]

    @property
    def validations(self) -> list[Measured]:
        """In the order they were made; those with no finite loss are left out."""
        accuracies = dict(zip(*self.series("valid_accuracy"), strict=True))
        return [
            Measured(step, loss, accuracies.get(step, math.nan))
            for step, loss in zip(*self.series("valid_loss"), strict=True)
            if not math.isnan(loss)
        ]

    @property
    def best(self) -> Measured | None:
        """The validation with the lowest loss."""
        return min(self.validations, key=lambda measured: measured.loss, default=None)


def read_record(folder: str | Path) -> Record:
    """All that can be read; a `TrainingError` if this is no run folder, or nothing was measured yet."""
    folder = Path(folder).expanduser()
    if not (folder / RUN).exists():
        near = [place for place in (folder.parent, folder / "run") if (place / RUN).exists()]
        remedy = f"did you mean {near[0]}?" if near else "give the folder that was --out of transduce train"
        raise TrainingError(f"{folder} is not a run folder: it has no {RUN}", remedy)
    config = read_toml(folder / RUN)
    metrics = read_metrics(folder / METRICS)
    if not metrics:
        raise TrainingError(
            f"{folder} has no metrics yet",
            f"train first: transduce {_COMMANDS.get(config.model.family, 'train')} --resume --out {folder}",
        )
    checkpoints = checkpoint.list_checkpoints(folder / "checkpoints")
    return Record(
        folder,
        config,
        None if isinstance(config.model, ViTConfig) else TokenizerPair.load(folder),
        metrics,
        _read_progress(checkpoints),
        len(checkpoints),
        _open_data(folder, "train", config),
        _open_data(folder, "valid", config),
    )


def _open_data(folder: Path, part: str, config: RunConfig) -> Pairs | Sequences | Images | None:
    """What the run is trained or validated on, if that is still there."""
    model = config.model
    place = folder / ("text" if isinstance(model, GPTConfig | BERTConfig) else "data") / part
    if not place.exists():
        return None
    if isinstance(model, ViTConfig):
        return Images.open(place)
    if isinstance(model, GPTConfig) or (isinstance(model, BERTConfig) and not model.classes):
        return Sequences(place, SIDE)
    return Pairs.open(place)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every line of ``metrics.jsonl`` but a torn last one, which a killed run leaves."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TrainingError(f"cannot read {path}: {error.strerror}", "check your rights") from error
    # The last part is empty, or a line that was never finished.
    return [_parse(line, f"{path} line {number}") for number, line in enumerate(lines[:-1], 1)]


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or type(found.get("step")) is not int:
        raise TrainingError(f"{where} is not a line of metrics", "remove that line")
    return found


def _read_progress(checkpoints: list[Path]) -> Progress | None:
    """Of the newest checkpoint that tells."""
    known = {field.name for field in fields(Progress)}
    for path in reversed(checkpoints):
        try:
            state = json.loads((path / checkpoint.STATE).read_text(encoding="utf-8"))
            return Progress(**{name: value for name, value in state.items() if name in known})
        except (OSError, ValueError, AttributeError):
            continue
    return None
