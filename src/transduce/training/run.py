"""A run folder: from text files to a trained model.

run.toml       the resolved configuration; written last, so that it stands for a prepared run
tokenizer.json, data/   what the text became
start/         the model it starts from, if there is one
checkpoints/   to go on from
metrics.jsonl  what was measured
best/, final/  model folders
"""

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console

from transduce import artifact
from transduce.config import RunConfig, read_toml, write_toml
from transduce.data import tokenizer as tokenizers
from transduce.data.corpus import Corpus
from transduce.data.doctor import Doctor
from transduce.data.prepare import clean_lines, prepare
from transduce.data.prepared import Pairs
from transduce.data.report import print_report
from transduce.data.tokenizer import Kind, Tokenizer
from transduce.errors import DataError, TrainingError
from transduce.machine import keep_memory
from transduce.models.build import build
from transduce.models.protocol import Model
from transduce.training import checkpoint
from transduce.training.choices import Wishes, choose, steps_of_epochs
from transduce.training.distributed import Team
from transduce.training.lock import LOCK, alone_in
from transduce.training.objective import SequenceToSequence
from transduce.training.optimizer import freeze
from transduce.training.probe import measure_precision, probe
from transduce.training.progress import Display, Everyone
from transduce.training.tensorboard import TensorBoard
from transduce.training.trainer import Trainer

MAX_LENGTH = 512  # tokens; longer texts are left out
SLACK = 0.95  # of the minutes are planned: saving takes time too


@dataclass(frozen=True)
class Inputs:
    """The text, and how it is cut up."""

    train: Corpus
    valid: Corpus | None = None
    tokenizer: Kind | Path = "bpe"  # a kind to train, or a ready-made tokenizer's file
    vocabulary: int = 8000
    joint: bool = True
    hold_out: float = 0.02
    max_length: int = MAX_LENGTH
    strict: bool = False
    examined: bool = True  # by the doctor, before anything else


@dataclass
class Run:
    """What a run folder holds."""

    folder: Path
    console: Console = field(default_factory=Console)
    team: Team = field(default_factory=Team)

    @property
    def is_prepared(self) -> bool:
        """There is a run here that can go on."""
        return (self.folder / "run.toml").exists()

    def describe(self) -> str:
        """How far the run in this folder is."""
        steps = read_toml(self.folder / "run.toml").training.steps
        return f"{self.folder} holds a run already, at step {self._steps_done():,} of {steps:,}"

    def _steps_done(self) -> int:
        found = checkpoint.list_checkpoints(self.folder / "checkpoints")
        return int(found[-1].name.removeprefix("step-")) if found else 0

    def prepare(self, inputs: Inputs, wishes: Wishes | None = None) -> None:
        """Look at the text, write it as ids, and decide all that was left open."""
        wishes = wishes or Wishes()
        if self.is_prepared:
            raise TrainingError(self.describe(), "add --resume to go on with it, or choose another --out")
        self._check_place()
        limit = wishes.limit(inputs.max_length)  # whether there is such a model is better known now, too
        if inputs.examined:
            self._examine(inputs)
        with alone_in(self.folder):
            self._prepare(inputs, wishes, limit)

    def _prepare(self, inputs: Inputs, wishes: Wishes, limit: int) -> None:
        shutil.rmtree(self.folder / "start", ignore_errors=True)  # of a preparation that was cut off
        tokenizer = artifact.load_tokenizer(wishes.start) if wishes.start else self._tokenizer(inputs)
        self._cut(inputs, tokenizer, limit)
        tokenizer.save(self.folder)
        train, valid = self._pairs()
        config = self._decide(wishes, train, tokenizer)
        if wishes.start:
            old = artifact.load(wishes.start).float()
            model = artifact.assemble(config.model, old.vocabulary, dict(old.named_parameters()))
            artifact.save(model, self.folder / "start", tokenizer)
        write_toml(config, self.folder / "run.toml")
        sizes = tokenizer.vocabulary
        tokens = (
            f"{sizes.target:,}" if tokenizer.joint else f"{sizes.source:,} source and {sizes.target:,} target"
        )
        self.console.print(
            f"{len(train):,} pairs to train on, {len(valid):,} to validate, {tokens} tokens",
            highlight=False,
        )

    def _check_place(self) -> None:
        """Nothing of somebody else's may be there; a preparation that was cut off may."""
        if self.folder.exists() and not self.folder.is_dir():
            raise TrainingError(f"{self.folder} is a file", "choose another --out")
        ours = {
            "data",
            "start",
            ".run.toml.new",
            LOCK,
            tokenizers.JOINT,
            tokenizers.SOURCE,
            tokenizers.TARGET,
        }
        others = {path.name for path in self.folder.iterdir()} - ours if self.folder.exists() else set()
        if others:
            raise TrainingError(
                f"{self.folder} holds other things than a run, {min(others)} for one", "choose a new --out"
            )

    def extend(self, steps: int) -> None:
        """Let a run go on for longer, or less long, than was planned."""
        config = read_toml(self.folder / "run.toml")
        if steps == config.training.steps:
            return
        if steps <= (done := self._steps_done()):
            raise TrainingError(f"the run in {self.folder} is at step {done:,} already", "ask for more steps")
        training = config.training.model_copy(update={"steps": steps, "minutes": None})
        write_toml(config.model_copy(update={"training": training}), self.folder / "run.toml")

    def open(self) -> tuple[RunConfig, Model, Tokenizer, SequenceToSequence, SequenceToSequence]:
        """Configuration, new model, tokenizer, training and validation data of a prepared run."""
        config, tokenizer = read_toml(self.folder / "run.toml"), Tokenizer.load(self.folder)
        start = self.folder / "start"
        model = (
            artifact.load(start)
            if start.exists()
            else build(config.model, tokenizer.vocabulary, seed=config.training.seed)
        )
        return config, model, tokenizer, *self._objectives(config, tokenizer)

    def train(self, *, tensorboard: bool = False) -> bool:
        """Train, or go on training; says whether the run is finished."""
        with alone_in(self.folder) if self.team.leads else nullcontext():
            return self._train(tensorboard)

    def _train(self, tensorboard: bool) -> bool:
        keep_memory()
        config, model, tokenizer, train, valid = self.open()
        with Display(self.console, config.training.steps) as display:
            trainer = Trainer(self.folder, config, model, tokenizer, train, valid, display, self.team)
            trainer.resume()
            if trainer.progress.finished:
                display.say("the run is finished; --steps asks for more")
            with self._tracking(trainer, tensorboard), _stopping_politely(trainer):
                trainer.run()
        return trainer.progress.finished

    @contextmanager
    def _tracking(self, trainer: Trainer, wanted: bool) -> Iterator[None]:
        if not (wanted and self.team.leads):
            yield
            return
        board = TensorBoard(self.folder, trainer.progress.step)
        trainer.watcher = Everyone(trainer.watcher, board)
        try:
            yield
        finally:
            board.close()

    def _pairs(self) -> tuple[Pairs, Pairs]:
        return Pairs.open(self.folder / "data" / "train"), Pairs.open(self.folder / "data" / "valid")

    def _objectives(
        self, config: RunConfig, tokenizer: Tokenizer
    ) -> tuple[SequenceToSequence, SequenceToSequence]:
        train, valid = self._pairs()
        return (
            SequenceToSequence(train, config.training, tokenizer),
            SequenceToSequence(valid, config.training),
        )

    def _decide(self, wishes: Wishes, pairs: Pairs, tokenizer: Tokenizer) -> RunConfig:
        """What the machine and the amount of text decide: precision, and steps for a time or for epochs."""
        keep_memory()
        config = choose(wishes, pairs, joint=tokenizer.joint)
        train, valid = self._objectives(config, tokenizer)
        alone = Team(device=self.team.device)  # the other processes wait
        precision = config.training.precision

        def trial() -> Model:
            model = build(config.model, tokenizer.vocabulary, seed=config.training.seed)
            freeze(model, config.training.freeze)
            return model

        trial()  # a part that cannot be frozen is better known now
        if precision == "auto":
            precision, why = measure_precision(config, trial(), tokenizer, train, alone)
            self.console.print(f"precision: {why}", highlight=False)
        steps = steps_of_epochs(train, wishes.epochs) if wishes.epochs else None
        if wishes.minutes:
            seconds = 60 * wishes.minutes
            with self.console.status("measuring the speed ..."):
                measured = probe(config, trial(), tokenizer, train, valid, alone, min(20.0, 0.05 * seconds))
            steps = measured.steps_in(SLACK * seconds * self.team.size, config.training.validate_every)
            self.console.print(f"{wishes.minutes:g} minutes: {steps:,} steps", highlight=False)
        config = choose(wishes, pairs, joint=tokenizer.joint, steps=steps)
        training = config.training.model_copy(update={"precision": precision})
        return config.model_copy(update={"training": training})

    def _examine(self, inputs: Inputs) -> None:
        with self.console.status("looking at the text ..."):
            report = Doctor().examine(inputs.train, {"validation": inputs.valid} if inputs.valid else {})
        if report.findings:
            print_report(report, self.console)
            fatal = [finding.problem for finding in report.findings if finding.fatal]
            if fatal or inputs.strict:
                why = f": {fatal[0]}" if fatal else ""
                raise DataError(f"the text is not fit for training{why}", "mend what the table above says")

    def _tokenizer(self, inputs: Inputs) -> Tokenizer:
        if isinstance(inputs.tokenizer, Path):
            side = tokenizers.load_side(inputs.tokenizer)
            return Tokenizer(side, side)
        with self.console.status("learning the vocabulary ..."):
            return tokenizers.train(
                (text for chunk in clean_lines(inputs.train) for text in chunk.sources),
                (text for chunk in clean_lines(inputs.train) for text in chunk.targets),
                kind=inputs.tokenizer,
                size=inputs.vocabulary,
                joint=inputs.joint,
            )

    def _cut(self, inputs: Inputs, tokenizer: Tokenizer, max_length: int) -> None:
        """Text to prepared pairs."""
        with self.console.status("cutting the text into tokens ...") as status:
            done = 0

            def tell(pairs: int) -> None:
                nonlocal done
                done += pairs
                status.update(f"cutting the text into tokens ... {done:,} pairs")

            try:
                data = prepare(
                    self.folder / "data",
                    tokenizer,
                    inputs.train,
                    inputs.valid,
                    hold_out=inputs.hold_out,
                    max_length=max_length,
                    progress=tell,
                )
            except OSError as error:
                raise DataError(
                    f"cannot write {self.folder / 'data'}: {error.strerror}",
                    "check the space and your rights",
                ) from error
        if data.too_long:
            said = f"{data.too_long:,} pairs are longer than {max_length} tokens"
            if inputs.strict:
                raise DataError(said, "remove them, or raise --max-length")
            self.console.print(f"{said} and left out", highlight=False)


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
