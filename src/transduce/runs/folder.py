"""A run folder, whatever is trained in it on whatever data."""

import shlex
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from rich.console import Console

from transduce.config import BERTConfig, ModelConfig, RunConfig, read_toml, write_toml
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import TrainingError
from transduce.machine import keep_memory
from transduce.models.protocol import Model
from transduce.runs.lock import LOCK, alone_in
from transduce.runs.reporting.progress import CallbackGroup, ProgressDisplay
from transduce.runs.reporting.tensorboard import TensorBoard
from transduce.training import checkpoint
from transduce.training.distributed import WorkerGroup
from transduce.training.memory import explain_out_of_memory
from transduce.training.objectives.objective import Objective
from transduce.training.trainer import Trainer


@dataclass
class RunFolder(ABC):
    """Where a run is prepared, trained, stopped and gone on with."""

    command: ClassVar[str]  # that trains in such a folder
    inputs_made: ClassVar[frozenset[str]]  # what preparing writes, beside run.toml

    folder: Path
    console: Console = field(default_factory=Console)
    team: WorkerGroup = field(default_factory=WorkerGroup)

    @abstractmethod
    def open(self) -> tuple[RunConfig, Model, TokenizerPair | None, Objective[Any], Objective[Any]]:
        """Configuration, new model, tokenizer, training and validation data of a prepared run."""

    @property
    def is_prepared(self) -> bool:
        """There is a run here that can go on."""
        return (self.folder / "run.toml").exists()

    def read_config(self) -> RunConfig:
        """What was decided about the run that is here; it must be one of this kind."""
        config = read_toml(self.folder / "run.toml")
        if (command := command_for(config.model)) != self.command:
            raise TrainingError(
                f"{self.folder} holds a run of transduce {command}, not of transduce {self.command}",
                f"go on with it by transduce {command} --resume",
            )
        return config

    def describe(self) -> str:
        """How far the run in this folder is."""
        steps = read_toml(self.folder / "run.toml").training.steps
        return f"{self.folder} holds a run already, at step {self._steps_done():,} of {steps:,}"

    def _steps_done(self) -> int:
        found = checkpoint.list_checkpoints(self.folder / "checkpoints")
        return int(found[-1].name.removeprefix("step-")) if found else 0

    def _check_checkpoints(self) -> None:
        """A finished run without checkpoints would begin anew, and write over its own models."""
        final = self.folder / "final"
        if final.exists() and not checkpoint.list_checkpoints(self.folder / "checkpoints"):
            raise TrainingError(
                f"{self.folder} holds a finished run whose checkpoints are gone: it cannot go on",
                f"choose another --out, with --from {final} to start where it ended",
            )

    def check_place(self) -> None:
        """No run and nothing of somebody else's may be there; a preparation that was cut off may."""
        if self.is_prepared:
            raise TrainingError(self.describe(), "add --resume to go on with it, or choose another --out")
        if self.folder.exists() and not self.folder.is_dir():
            raise TrainingError(f"{self.folder} is a file", "choose another --out")
        ours = self.inputs_made | {".run.toml.new", LOCK}
        others = {path.name for path in self.folder.iterdir()} - ours if self.folder.exists() else set()
        if others:
            raise TrainingError(
                f"{self.folder} holds other things than a run, {min(others)} for one", "choose a new --out"
            )

    def extend(self, steps: int) -> None:
        """Let a run go on for longer, or less long, than was planned."""
        config = self.read_config()
        if steps == config.training.steps:
            return
        if steps <= (done := self._steps_done()):
            raise TrainingError(f"the run in {self.folder} is at step {done:,} already", "ask for more steps")
        training = config.training.model_copy(update={"steps": steps, "minutes": None})
        write_toml(config.model_copy(update={"training": training}), self.folder / "run.toml")

    def carry_out(
        self, prepare: Callable[[], None], *, resume: bool, steps: int | None, tensorboard: bool
    ) -> bool:
        """Prepare and train, or with ``resume`` go on with the run that is here, for ``steps`` if given.

        Says how it went, and gives whether the run is finished.
        """
        going_on = resume and self.is_prepared
        if going_on:
            self._check_checkpoints()
            self._say(f"going on as {self.folder / 'run.toml'} says; of other options only steps count")
        elif self.team.is_main:
            prepare()
        finished = self.train(steps=steps if going_on else None, tensorboard=tensorboard)
        if not finished:
            command = (
                f"{self.team.launch_command} {self.command} --resume --out {shlex.quote(str(self.folder))}"
            )
            self._say(f"stopped; to go on: {command}")
        elif (best := self.folder / "best").exists():
            self._say(
                f"the model is in {self.folder / 'final'}; the one with the lowest validation loss in {best}"
            )
        else:  # no validation gave a number
            self._say(f"the model is in {self.folder / 'final'}")
        return finished

    def train(self, *, steps: int | None = None, tensorboard: bool = False) -> bool:
        """Train, or go on training, for ``steps`` if given; says whether the run is finished."""
        with alone_in(self.folder) if self.team.is_main else nullcontext():
            if steps and self.team.is_main:
                self.extend(steps)
            self.team.barrier()  # the others read what the first one has written
            return self._train(tensorboard)

    def _say(self, message: str) -> None:
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    @explain_out_of_memory()
    def _train(self, tensorboard: bool) -> bool:
        keep_memory()
        config, model, tokenizer, train, valid = self.open()
        with ProgressDisplay(self.console, config.training.steps, train.words) as display:
            trainer = Trainer(self.folder, config, model, tokenizer, train, valid, display, self.team)
            trainer.resume()
            if trainer.progress.finished:
                display.on_message("the run is finished; --steps asks for more")
            with self._tracking(trainer, tensorboard), _stopping_politely(trainer):
                trainer.run()
        return trainer.progress.finished

    @contextmanager
    def _tracking(self, trainer: Trainer, wanted: bool) -> Iterator[None]:
        if not (wanted and self.team.is_main):
            yield
            return
        board = TensorBoard(self.folder, trainer.progress.step, trainer.train_data.words)
        trainer.callback = CallbackGroup(trainer.callback, board)
        try:
            yield
        finally:
            board.close()


def command_for(model: ModelConfig) -> str:
    """The command that trains such a model."""
    if isinstance(model, BERTConfig):
        return "mlm train" if model.masked_head else "mlm finetune"
    return {"gpt": "lm train", "vit": "vision train"}.get(model.family, "train")


@contextmanager
def _stopping_politely(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C, or a request to terminate, asks for a checkpoint and an end; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's business
        return

    def ask(number: int, frame: FrameType | None) -> None:
        trainer.stop_requested = True  # and no word: the signal may have come in the middle of one
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
