"""One call of a training command: prepare a run or resume one, train it, and say how it went."""

import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from transduce.config import RunConfig
from transduce.errors import TrainingError
from transduce.machine import keep_memory
from transduce.runs.autotune import using_threads
from transduce.runs.defaults import UserChoices
from transduce.runs.folder import RUN, PreparedRun, RunFolder
from transduce.runs.inputs import RunInputs
from transduce.runs.lock import locked
from transduce.runs.prepare import prepare, warn_about_warmup
from transduce.runs.reporting.progress import CallbackGroup, ProgressDisplay
from transduce.runs.task import Task
from transduce.terminal import print_line
from transduce.training.distributed import WorkerGroup
from transduce.training.memory import explain_out_of_memory
from transduce.training.trainer import Trainer

if TYPE_CHECKING:
    from transduce.decoding.translator import Translator
    from transduce.runs.reporting.tracker import Tracker

_OPTIONS = {  # where the names differ
    "from_model": "from",
    "overrides": "set",
    "source_factors": "source-factor",
    "valid_source_factors": "valid-source-factor",
    "source_language": "source-lang",
    "target_language": "target-lang",
}


@dataclass(frozen=True)
class Run:
    """A run that `transduce.train` or one of its siblings has trained, to its end or until it was stopped."""

    folder: Path
    task: Task = field(repr=False)
    finished: bool

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Return the run of an earlier training, from its run folder."""
        from transduce.runs.reporting.record import read_record

        record = read_record(folder)
        return cls(record.folder, record.task, record.finished)

    @property
    def best(self) -> Path:
        """The model folder with the best validation; it is missing if no validation loss was finite."""
        return RunFolder(self.folder).best

    @property
    def final(self) -> Path:
        """The model folder of the finished run."""
        return RunFolder(self.folder).final

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``, of training (``nll``) and validation (``valid_loss``)."""
        from transduce.runs.reporting.record import METRICS, read_metrics

        return read_metrics(self.folder / METRICS)

    def translator(self) -> "Translator":
        """Load the final model for translation, or the best one if the run is not finished."""
        from transduce.decoding.translator import Translator

        if not self.task.can_translate:
            raise TrainingError(
                f"the model in {self.folder} cannot translate",
                f"it was trained by transduce {self.task.command}",
            )
        return Translator.load(self.final if self.finished else self.best)


class TrainingSession:
    """The preparation and the training of one run, as one process of the team sees them."""

    def __init__(
        self,
        out: Path,
        task: Task,
        console: Console,
        team: WorkerGroup,
        *,
        device: str = "auto",
        tensorboard: bool = False,
        wandb: bool = False,
    ) -> None:
        """``device`` is the name that the user chose; the team's device follows from it."""
        self.folder, self.task, self.console, self.team = RunFolder(out), task, console, team
        self.device, self.tensorboard, self.wandb = device, tensorboard, wandb
        self._run: PreparedRun | None = None

    def resumes(self, wanted: bool, ignored: Sequence[str]) -> bool:
        """Return whether a run is resumed, and print it; ``ignored`` are the options without effect then."""
        if not wanted:
            return False
        if not self.folder.is_prepared:
            if self.team.is_main:
                self.folder.check_unused(self.task)
            if not ignored:  # so there are no data
                raise TrainingError(
                    f"{self.folder.path} holds no run to resume", "check --out, or give data for a new run"
                )
            self.say(f"{self.folder.path} holds no run to resume; a new one is started")
            return False
        self.folder.check_resumable()
        self.say(f"resuming {self.folder.path} with the settings in {self.folder.path / RUN}")
        if ignored:
            names = ", ".join(map(option_for, ignored))
            self.say(f"these options have no effect on a resumed run: {names}; only --steps can change it")
        return True

    def prepare(self, inputs: RunInputs, choices: UserChoices) -> None:
        """Prepare a new run; the first process does it for all."""
        if self.team.is_main:
            self._run = prepare(self.folder.path, inputs, choices, self.console, self.team)

    def train(self, steps: int | None = None) -> Run:
        """Train to the end, or until it is interrupted.

        ``steps`` changes the number of steps of a resumed run.
        """
        with locked(self.folder.path) if self.team.is_main else nullcontext():
            if steps and self._run is None and self.team.is_main:
                self.folder.change_steps(self.task, steps)
            self.team.barrier()  # until the first process has written the prepared run
            with ExitStack() as verification:
                if self._run is None:
                    verification.enter_context(self.folder.verifying(self.task))
                run, self._run = self._run or self.folder.open(self.task), None
                if steps:
                    remedy = f"set a smaller warmup in {self.folder.path / RUN}"
                    warn_about_warmup(run.config.training, self.console, remedy)
                with using_threads(run.config.training.threads):
                    finished = self._train(run, verification)
        self._say_how_it_went(finished)
        return Run(self.folder.path, self.task, finished)

    def say(self, message: str) -> None:
        """Print a line without wrapping, so that commands can be copied."""
        print_line(self.console, message)

    @explain_out_of_memory()
    def _train(self, run: PreparedRun, verification: ExitStack) -> bool:
        """Train, once the ``verification`` of the data, which ends here, has found no damage."""
        keep_memory()
        training = run.config.training
        with ProgressDisplay(
            self.console, training.steps, run.task.words, minutes=training.minutes
        ) as display:
            trainer = run.make_trainer(display, self.team)
            trainer.resume()
            verification.close()
            if trainer.progress.finished:
                display.on_message("the run is already finished; use --steps to train for more steps")
            with self._tracking(trainer), _stopping_after_the_step(trainer):
                trainer.run()
        return trainer.progress.finished

    @contextmanager
    def _tracking(self, trainer: Trainer) -> Iterator[None]:
        """Log the metrics to TensorBoard or Weights & Biases, too."""
        trackers = self._trackers(trainer.progress.step, trainer.config) if self.team.is_main else []
        trainer.callback = CallbackGroup(trainer.callback, *trackers)
        try:
            yield
        finally:
            for tracker in trackers:
                tracker.close()

    def _trackers(self, step: int, config: RunConfig) -> "list[Tracker]":
        trackers: list[Tracker] = []
        if self.tensorboard:
            from transduce.runs.reporting.tensorboard import TensorBoard

            trackers.append(TensorBoard(self.folder.path, step, self.task.words))
        if self.wandb:
            from transduce.runs.reporting.wandb import WeightsAndBiases

            trackers.append(WeightsAndBiases(self.folder.path, step, self.task.words, config))
        return trackers

    def _say_how_it_went(self, finished: bool) -> None:
        if not finished:
            self.say(f"stopped; to resume: {self.resume_command}")
            return
        self.say(f"final model: {self.folder.final}")
        if self.folder.best.exists():  # it is missing if no validation loss was finite
            self.say(f"model with the best validation: {self.folder.best}")

    @property
    def resume_command(self) -> str:
        """The command that continues this run in the same way."""
        command = f"{self.team.launch_command} {self.task.command} --resume --out "
        command += shlex.quote(str(self.folder.path))
        options = {
            f" --device {self.device}": self.device != "auto",
            " --tensorboard": self.tensorboard,
            " --wandb": self.wandb,
        }
        return command + "".join(option for option, is_given in options.items() if is_given)


def option_for(argument: str) -> str:
    """Return the command line's option for an argument of a training function."""
    return f"--{_OPTIONS.get(argument, argument).replace('_', '-')}"


@contextmanager
def _stopping_after_the_step(trainer: Trainer) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM save a checkpoint and stop after the current step; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        trainer.stop_requested = True  # without a message: the signal may have come while one was printed
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
