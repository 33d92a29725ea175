"""A whole run: from text files to a trained model in a run folder.

run.toml       the resolved configuration; written last, so that it stands for a prepared run
tokenizer.json, data/   what the text became
checkpoints/   to go on from
metrics.jsonl  what was measured
best/, final/  model folders
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console

from transduce.config import PRESETS, RunConfig, TrainingConfig, preset, read_toml, write_toml
from transduce.data import tokenizer as tokenizers
from transduce.data.corpus import Corpus
from transduce.data.doctor import Doctor
from transduce.data.prepare import clean_lines, prepare
from transduce.data.prepared import Pairs
from transduce.data.report import print_report
from transduce.data.tokenizer import Kind, Tokenizer
from transduce.errors import DataError, TrainingError
from transduce.models.build import build
from transduce.training.objective import SequenceToSequence
from transduce.training.progress import Display
from transduce.training.trainer import Trainer

FEW_PAIRS = 300_000  # up to here a small model learns as much as a large one, sooner


@dataclass(frozen=True)
class Inputs:
    """The text, and how it is cut up."""

    train: Corpus
    valid: Corpus | None = None
    tokenizer: Kind | Path = "bpe"  # a kind to train, or a ready-made tokenizer's file
    vocabulary: int = 8000
    joint: bool = True
    hold_out: float = 0.02
    strict: bool = False
    examined: bool = True  # by the doctor, before anything else


@dataclass
class Run:
    """What a run folder holds."""

    folder: Path
    console: Console = field(default_factory=Console)

    @property
    def is_prepared(self) -> bool:
        """There is a run here that can go on."""
        return (self.folder / "run.toml").exists()

    def prepare(
        self,
        inputs: Inputs,
        config: RunConfig | None = None,
        *,
        preset_name: str | None = None,
        steps: int | None = None,
    ) -> None:
        """Look at the text and write it as ids; without a configuration, choose one that suits it."""
        model = preset(preset_name).model if preset_name else None
        if self.is_prepared:
            raise TrainingError(
                f"{self.folder} holds a run already", "add --resume to go on with it, or choose another --out"
            )
        if inputs.examined:
            self._examine(inputs)
        tokenizer = self._tokenizer(inputs)
        with self.console.status("cutting the text into tokens ...") as status:
            done = 0

            def tell(pairs: int) -> None:
                nonlocal done
                done += pairs
                status.update(f"cutting the text into tokens ... {done:,} pairs")

            data = prepare(
                self.folder / "data",
                tokenizer,
                inputs.train,
                inputs.valid,
                hold_out=inputs.hold_out,
                progress=tell,
            )
        if data.too_long:
            self.console.print(f"{data.too_long:,} pairs are too long and left out", highlight=False)
        tokenizer.save(self.folder)
        chosen = config or suitable(data.train, steps)
        if model:
            chosen = chosen.model_copy(update={"model": model})
        if steps:
            training = chosen.training.model_copy(update={"steps": steps})
            chosen = chosen.model_copy(update={"training": training})
        write_toml(chosen, self.folder / "run.toml")
        self.console.print(
            f"{len(data.train):,} pairs to train on, {len(data.valid):,} to validate, "
            f"{tokenizer.vocabulary.target:,} tokens",
            highlight=False,
        )

    def train(self) -> bool:
        """Train, or go on training; says whether the run is finished."""
        config, tokenizer = read_toml(self.folder / "run.toml"), Tokenizer.load(self.folder)
        model = build(config.model, tokenizer.vocabulary, seed=config.training.seed)
        train, valid = (
            SequenceToSequence(Pairs.open(self.folder / "data" / part), config.training)
            for part in ("train", "valid")
        )
        with Display(self.console, config.training.steps) as display:
            trainer = Trainer(self.folder, config, model, tokenizer, train, valid, display)
            trainer.resume()
            with _stopping_politely(trainer):
                trainer.run()
        return trainer.progress.finished

    def _examine(self, inputs: Inputs) -> None:
        with self.console.status("looking at the text ..."):
            report = Doctor().examine(inputs.train, {"validation": inputs.valid} if inputs.valid else {})
        if report.findings:
            print_report(report, self.console)
            fatal = any(finding.fatal for finding in report.findings)
            if fatal or inputs.strict:
                raise DataError("the text is not fit for training", "mend what the table above says")

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


def suitable(pairs: Pairs, steps: int | None = None) -> RunConfig:
    """A configuration for this much text: about 30 times through it, between 2,000 and 100,000 steps."""
    training = TrainingConfig()
    steps_an_epoch = int(pairs.target.lengths.sum()) / (0.9 * training.max_tokens)
    steps = steps or int(min(100_000, max(2_000, 30 * steps_an_epoch)))
    few = len(pairs) <= FEW_PAIRS
    model = PRESETS["small" if few else "base"].model
    training = TrainingConfig(
        steps=steps,
        warmup=max(1, min(4000, steps // 10)),
        learning_rate=1e-3 if few else None,
        validate_every=max(100, min(1000, steps // 20)),
    )
    return RunConfig(model=model, training=training)


@contextmanager
def _stopping_politely(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C asks for a checkpoint and an end; a second one ends at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        trainer.stop_requested = True
        trainer.watcher.say("stopping after this step (once more to stop at once)")
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
