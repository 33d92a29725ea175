"""The run folder: what is in it, and how a prepared run is opened.

=================  ============================================================================
run.toml           the complete configuration; written last, so that it marks a prepared run
tokenizer*.json    the tokenizer of a run on text
data/ or text/     the prepared training and validation data
model.json         the [model] of run.toml as it was prepared: later edits may change dropout only
manifest.json      hashes of tokenizer, data and model.json, by which damage is found before training
start/             the model, or the new adapter, that training starts from, if a model was given
checkpoints/       what is needed to resume
metrics.jsonl      the metrics of training and validation
best/, final/      model folders, or adapter folders
=================  ============================================================================
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce import artifact
from transduce.config import ModelConfig, RunConfig, read_toml, write_toml
from transduce.data.prepared_tokenizer import tokenizer_files
from transduce.data.tokenizer import TOKENIZER_FILES, TokenizerPair
from transduce.errors import ConfigError, TrainingError, TransduceError
from transduce.files import MANIFEST, Damage, find_damage, read_json_object
from transduce.models.protocol import Model
from transduce.runs.adapter import START, open_start
from transduce.runs.lock import LOCK
from transduce.runs.task import Task, task_for
from transduce.training import checkpoint
from transduce.training.callback import TrainingCallback
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.objective import Objective
from transduce.training.objectives.translation import TranslationObjective
from transduce.training.trainer import Trainer
from transduce.training.validation import ValidationScorer

RUN = "run.toml"
MODEL = "model.json"


@dataclass(frozen=True)
class PreparedRun:
    """All that training needs: the configuration, the new model, and the data with their loss."""

    folder: Path
    task: Task
    config: RunConfig
    model: Model
    tokenizer: TokenizerPair | None  # not for images
    train: Objective[Any]
    valid: Objective[Any]
    adapter: artifact.AdapterHeader | None = None  # if only an adapter of the model is trained

    def make_trainer(
        self, callback: TrainingCallback, team: WorkerGroup, *, folder: Path | None = None
    ) -> Trainer:
        """Return a trainer that writes to the run folder, or to ``folder`` instead."""
        trainer = Trainer(
            folder or self.folder,
            self.config,
            self.model,
            self.tokenizer,
            self.train,
            self.valid,
            callback,
            team,
            self.make_scorer(),
            self.adapter,
        )
        trainer.writer.longest_source = self._longest_source()
        return trainer

    def _longest_source(self) -> int | None:
        """Return the longest source that the model has seen; ``None`` if that is unknown.

        A model to fine-tune knows longer sources than the new text may have.
        """
        start, longest = self.folder / START, self.train.longest_source
        if longest is None or not start.exists():
            return longest
        known = artifact.read_header(start).longest_source
        return None if known is None else max(known, longest)

    def make_scorer(self) -> ValidationScorer | None:
        """Return a scorer of translations, if BLEU or chrF is to decide which model is the best."""
        if self.config.training.validation_metric == "loss" or not self.task.can_translate:
            return None
        from transduce.runs.scoring import TranslationScorer

        if not isinstance(self.valid, TranslationObjective) or self.tokenizer is None:
            raise TypeError("translations are scored on pairs of texts")
        return TranslationScorer(self.valid.pairs, self.tokenizer)


@dataclass(frozen=True)
class RunFolder:
    """A folder in which a run is prepared, trained and resumed."""

    path: Path

    @property
    def is_prepared(self) -> bool:
        """Whether the folder holds a run that can be trained or resumed."""
        return (self.path / RUN).exists()

    @property
    def final(self) -> Path:
        """The model folder that training writes at its end."""
        return self.path / "final"

    @property
    def best(self) -> Path:
        """The model folder with the best validation."""
        return self.path / "best"

    @property
    def _start_anew(self) -> str:
        """What to do with a run that cannot be resumed."""
        begin = f", with --from {self.best}" if self.best.exists() else ""
        return f"start a new run in another folder{begin}"

    def read_config(self, task: Task) -> RunConfig:
        """Return the configuration of the run; raise a `TrainingError` if it is a run of another task."""
        config = read_toml(self.path / RUN)
        if not {"model", "training"} <= config.model_fields_set:
            raise TrainingError(
                f"{self.path / RUN} is damaged: it lacks [model] or [training]",
                f"restore the file, or {self._start_anew}",
            )
        command = task_for(config.model).command
        if command != task.command:
            raise TrainingError(
                f"{self.path} holds a run of transduce {command}, not of transduce {task.command}",
                f"run: transduce {command} --resume --out {self.path}",
            )
        return config

    def describe(self) -> str:
        """Return a sentence about how far the run is."""
        steps = read_toml(self.path / RUN).training.steps
        return f"{self.path} already holds a run, at step {self.steps_done():,} of {steps:,}"

    def steps_done(self) -> int:
        """Return the step of the newest checkpoint, or 0."""
        checkpoints = checkpoint.list_checkpoints(self.path / "checkpoints")
        return checkpoint.step_of(checkpoints[-1]) if checkpoints else 0

    def check_unused(self, task: Task) -> None:
        """Raise a `TrainingError` unless the folder is new, empty or left by an interrupted preparation."""
        if self.is_prepared:
            raise TrainingError(self.describe(), "add --resume to continue it, or choose another --out")
        if self.path.exists() and not self.path.is_dir():
            raise TrainingError(f"{self.path} is a file", "choose another --out")
        ours = {task.data_folder, START, *TOKENIZER_FILES}
        ours |= {f".{RUN}.new", LOCK, MODEL, MANIFEST, f".{MANIFEST}.new"}
        others = {path.name for path in self.path.iterdir()} - ours if self.path.exists() else set()
        if checkpoint.list_checkpoints(self.path / "checkpoints"):
            raise TrainingError(
                f"{self.path / RUN} is missing, but {self.path} holds the rest of a run",
                f"restore the file, or {self._start_anew}",
            )
        if others:
            raise TrainingError(
                f"{self.path} is not empty and not a run folder: it contains {min(others)}",
                "choose another --out",
            )

    def check_resumable(self) -> None:
        """Raise a `TrainingError` for a finished run without checkpoints, which would start from scratch."""
        if self.final.exists() and not checkpoint.list_checkpoints(self.path / "checkpoints"):
            raise TrainingError(
                f"{self.path} holds a finished run without checkpoints, which cannot be resumed",
                f"choose another --out, and add --from {self.final} to start from its model",
            )

    def change_steps(self, task: Task, steps: int) -> None:
        """Let the run end after this number of steps instead of the planned one."""
        config = self.read_config(task)
        if steps == config.training.steps:
            return
        if steps <= (done := self.steps_done()):
            raise TrainingError(
                f"the run in {self.path} is already at step {done:,}", f"use --steps with more than {done}"
            )
        training = config.training.model_copy(update={"steps": steps, "minutes": None})
        write_toml(config.model_copy(update={"training": training}), self.path / RUN)

    def prepared_files(self, task: Task) -> list[Path]:
        """Return the files of the tokenizer, of the prepared data, and the record of the model."""
        present = tokenizer_files(self.path) if task.has_tokenizer else []
        present += [self.path / MODEL] if (self.path / MODEL).exists() else []
        return present + [path for path in (self.path / task.data_folder).rglob("*") if path.is_file()]

    @contextmanager
    def verifying(self, task: Task) -> Iterator[None]:
        """Compare the tokenizer and the data with their hashes while the block runs, in a thread.

        At the end of the block, raise a `TrainingError` if they are not as they were prepared. It replaces an
        error that the block raised, which may follow from the damage.
        """
        with ThreadPoolExecutor(1) as pool:
            verification = pool.submit(self._find_damage, task)
            try:
                yield
            except TransduceError:
                self._require_intact(verification.result())
                raise
            self._require_intact(verification.result())

    def _find_damage(self, task: Task) -> Damage | None:
        try:
            return find_damage(self.path, self.prepared_files(task))
        except FileNotFoundError:
            return Damage(self.path / MANIFEST, "is missing")

    def _require_intact(self, damage: Damage | None) -> None:
        if damage:
            raise TrainingError(
                f"{damage.path} {damage.problem}",
                f"restore the file, or {self._start_anew}",
            )

    def record_model(self, model: ModelConfig) -> None:
        """Write down the model as it is prepared."""
        (self.path / MODEL).write_text(f"{model.model_dump_json(indent=2)}\n", encoding="utf-8")

    def require_same_model(self, model: ModelConfig) -> None:
        """Raise a `TrainingError` if the model in run.toml is not the prepared one, apart from dropout."""
        remedy = f"restore the file, or {self._start_anew}"
        prepared = read_json_object(self.path / MODEL, error=TrainingError, remedy=remedy)
        now = json.loads(model.model_dump_json())
        for key in (now.keys() | prepared.keys()) - artifact.EDITABLE:
            if now.get(key) != prepared.get(key):
                raise TrainingError(
                    f"{self.path / RUN} says {key} = {now.get(key)!r}, but the run was prepared with "
                    f"{prepared.get(key)!r}",
                    "undo the edit, or start a new run in another folder",
                )

    def open(self, task: Task) -> PreparedRun:
        """Open a prepared run; its model is as before the first step."""
        config = self.read_config(task)
        self.require_same_model(config.model)
        tokenizer = TokenizerPair.load(self.path) if task.has_tokenizer else None
        model, adapter = open_start(self.path, config, tokenizer.vocabulary if tokenizer else None)
        return PreparedRun(
            folder=self.path,
            task=task,
            config=config,
            model=model,
            tokenizer=tokenizer,
            train=task.open_objective(self.path, "train", config, tokenizer),
            valid=task.open_objective(self.path, "valid", config, tokenizer),
            adapter=adapter,
        )


def parse_steps(steps: str | None) -> list[int] | None:
    """Parse the steps of checkpoints, separated by commas: "1000,2000"."""
    if steps is None:
        return None
    parts = [part.strip() for part in steps.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise ConfigError(f"--steps is {steps!r}", "give steps separated by commas, for example 1000,2000")
    return [int(part) for part in parts]
