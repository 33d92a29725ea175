"""A run folder: from text files to a trained model.

run.toml       the resolved configuration; written last, so that it stands for a prepared run
tokenizer.json, data/   what the text became
start/         the model it starts from, if there is one
checkpoints/   to go on from
metrics.jsonl  what was measured
best/, final/  model folders
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from transduce import artifact
from transduce.config import RunConfig, write_toml
from transduce.data.corpus import Corpus
from transduce.data.doctor import Doctor
from transduce.data.doctor_report import print_report
from transduce.data.prepare import clean_lines, prepare
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import JOINT, SOURCE, TARGET, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_training import Kind, train_tokenizer
from transduce.errors import DataError
from transduce.models.build import build
from transduce.models.protocol import Model
from transduce.runs.autotune import decide
from transduce.runs.defaults import UserChoices, choose
from transduce.runs.folder import RunFolder
from transduce.runs.lock import alone_in
from transduce.training.objectives.translation import TranslationObjective

MAX_LENGTH = 512  # tokens; longer texts are left out


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


class Run(RunFolder):
    """A run on pairs of texts."""

    command = "train"
    inputs_made = frozenset({"data", "start", JOINT, SOURCE, TARGET})

    def prepare(self, inputs: Inputs, choices: UserChoices | None = None) -> None:
        """Look at the text, write it as ids, and decide all that was left open."""
        choices = choices or UserChoices()
        self.check_place()
        limit = choices.limit(inputs.max_length)  # whether there is such a model is better known now, too
        if inputs.examined:
            self._examine(inputs)
        with alone_in(self.folder):
            self._prepare(inputs, choices, limit)

    def _prepare(self, inputs: Inputs, choices: UserChoices, limit: int) -> None:
        shutil.rmtree(self.folder / "start", ignore_errors=True)  # of a preparation that was cut off
        tokenizer = artifact.load_tokenizer(choices.start) if choices.start else self._tokenizer(inputs)
        self._cut(inputs, tokenizer, limit)
        tokenizer.save(self.folder)
        train, valid = self._pairs()
        config = decide(
            lambda steps: choose(choices, train, joint=tokenizer.joint, steps=steps),
            choices,
            lambda config: build(config.model, tokenizer.vocabulary, seed=config.training.seed),
            tokenizer,
            lambda config: self._objectives(config, tokenizer),
            self.team,
            self.console,
        )
        if choices.start:
            old = artifact.load(choices.start).float()
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

    def open(self) -> tuple[RunConfig, Model, TokenizerPair, TranslationObjective, TranslationObjective]:
        """Configuration, new model, tokenizer, training and validation data of a prepared run."""
        config = self.read_config()
        tokenizer = TokenizerPair.load(self.folder)
        start = self.folder / "start"
        model = (
            artifact.load(start)
            if start.exists()
            else build(config.model, tokenizer.vocabulary, seed=config.training.seed)
        )
        return config, model, tokenizer, *self._objectives(config, tokenizer)

    def _pairs(self) -> tuple[Pairs, Pairs]:
        return Pairs.open(self.folder / "data" / "train"), Pairs.open(self.folder / "data" / "valid")

    def _objectives(
        self, config: RunConfig, tokenizer: TokenizerPair
    ) -> tuple[TranslationObjective, TranslationObjective]:
        train, valid = self._pairs()
        return (
            TranslationObjective(train, config.training, tokenizer),
            TranslationObjective(valid, config.training),
        )

    def _examine(self, inputs: Inputs) -> None:
        with self.console.status("looking at the text ..."):
            report = Doctor().examine(inputs.train, {"validation": inputs.valid} if inputs.valid else {})
        if report.findings:
            print_report(report, self.console)
            fatal = [finding.problem for finding in report.fatal]
            if fatal or inputs.strict:
                why = f": {fatal[0]}" if fatal else ""
                raise DataError(f"the text is not fit for training{why}", "mend what the table above says")

    def _tokenizer(self, inputs: Inputs) -> TokenizerPair:
        if isinstance(inputs.tokenizer, Path):
            side = load_side_tokenizer(inputs.tokenizer)
            return TokenizerPair(side, side)
        with self.console.status("learning the vocabulary ..."):
            return train_tokenizer(
                (text for chunk in clean_lines(inputs.train) for text in chunk.sources),
                (text for chunk in clean_lines(inputs.train) for text in chunk.targets),
                kind=inputs.tokenizer,
                size=inputs.vocabulary,
                joint=inputs.joint,
            )

    def _cut(self, inputs: Inputs, tokenizer: TokenizerPair, max_length: int) -> None:
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
