"""``transduce.train``: the command of the same name, in Python."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

from rich.console import Console

from transduce.config import RunConfig
from transduce.data.corpus import Corpus
from transduce.data.tokenizer_training import Kind
from transduce.errors import ConfigError, DataError
from transduce.runs.defaults import UserChoices, config_of
from transduce.runs.plan import Plan, make_plan
from transduce.runs.translation_run import MAX_LENGTH, Inputs, Run
from transduce.training.distributed import join_workers

File: TypeAlias = str | PathLike[str]
Files: TypeAlias = File | Sequence[File] | None


@dataclass(frozen=True)
class Options:
    """What to train on, and what: the options of ``transduce train``."""

    source: Files = None
    target: Files = None
    pairs: Files = None  # files that hold both sides: .tsv, .jsonl
    valid_source: Files = None
    valid_target: Files = None
    valid_pairs: Files = None
    config: RunConfig | File | None = None
    preset: str | None = None
    family: str | None = None  # transformer or rnn, with sizes that suit the text
    start: File | None = None  # a model folder to fine-tune; --from on the command line
    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    tokenizer: File | None = None  # bpe if not given, unigram, wordpiece, char, byte; or a file
    vocabulary: int | None = None  # the most tokens; 8,000 if not given
    separate: bool = False  # a vocabulary for each side
    hold_out: float = 0.02  # of the pairs, for validation, if no files are given for it
    max_length: int = MAX_LENGTH  # tokens
    strict: bool = False  # refuse text that has anything wrong with it

    def inputs(self, *, resuming: bool = False) -> Inputs:
        """The text, and how it is cut up."""
        train = Corpus.of(paths_of(self.source), paths_of(self.target), paths_of(self.pairs), "training")
        if train is None:
            raise DataError(
                "no files were given, and there is no run to go on with"
                if resuming
                else "no files were given",
                "name them: --source FILE --target FILE, or --pairs FILE",
            )
        return Inputs(
            train,
            Corpus.of(
                paths_of(self.valid_source),
                paths_of(self.valid_target),
                paths_of(self.valid_pairs),
                "validation",
            ),
            tokenizer=kind_or_file(
                self.tokenizer, "bpe", self.start, vocabulary=self.vocabulary, separate=self.separate
            ),
            vocabulary=Inputs.vocabulary if self.vocabulary is None else self.vocabulary,
            joint=not self.separate,
            hold_out=self.hold_out,
            max_length=self.max_length,
            strict=self.strict,
        )

    def choices(self) -> UserChoices:
        """The model, and how long it is trained."""
        return UserChoices(
            config=config_of(self.config),
            preset=self.preset,
            family=self.family,
            start=None if self.start is None else Path(self.start).expanduser(),
            steps=self.steps,
            epochs=self.epochs,
            minutes=self.minutes,
        )


def train(
    out: File,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    console: Console | None = None,
    **options: Any,
) -> bool:
    """Train a model on pairs of texts in the run folder ``out``; says whether the run is finished.

    The other options are those of `Options`: ``train("runs/en-de", source="train.en", target="train.de")``.
    With ``resume`` a run that is in ``out`` goes on, for more ``steps`` if they are given; if there is none,
    it starts. The trained model is in ``out/final``.
    """
    chosen = Options(**options)
    with join_workers() as team:
        run = Run(Path(out).expanduser(), console or Console(quiet=not team.is_main), team)
        return run.carry_out(
            lambda: run.prepare(chosen.inputs(resuming=resume), chosen.choices()),
            resume=resume,
            steps=chosen.steps,
            tensorboard=tensorboard,
        )


def plan(console: Console | None = None, **options: Any) -> Plan:
    """What `train` with these options would be like, from a short trial."""
    chosen = Options(**options)
    with join_workers() as team, tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), console or Console(), team)
        run.prepare(chosen.inputs(), chosen.choices())
        return make_plan(run)


def paths_of(files: Files) -> list[Path]:
    """Of one file, several or none."""
    if files is None:
        return []
    several = [files] if isinstance(files, (str, PathLike)) else files
    return [Path(file).expanduser() for file in several]


def kind_or_file(
    tokenizer: File | None, otherwise: Kind, start: File | None, **learning: object
) -> Kind | Path:
    """A kind of tokenizer, or the file of one; ``otherwise`` if none was given.

    ``learning`` has the options that say how a vocabulary is learned. A model to start from has one, and so
    has a file: rather than change nothing, such options are refused.
    """
    found = otherwise if tokenizer is None else _kind_or_file(tokenizer)
    if start is not None:
        _refuse("a model to start from", tokenizer=tokenizer, **learning)
    elif isinstance(found, Path):
        _refuse("a tokenizer's file", **learning)
    return found


def _refuse(known: str, **needless: object) -> None:
    for name, value in needless.items():
        if value is not None and value is not False:
            raise ConfigError(
                f"--{name} and {known} were given", f"leave --{name} out: the vocabulary is there already"
            )


def _kind_or_file(tokenizer: File) -> Kind | Path:
    if tokenizer in get_args(Kind):
        return cast("Kind", tokenizer)
    path = Path(tokenizer).expanduser()
    if not path.exists():
        kinds = ", ".join(get_args(Kind))
        raise DataError(f"there is no tokenizer {str(tokenizer)!r}", f"give {kinds}, or a tokenizer's file")
    return path
