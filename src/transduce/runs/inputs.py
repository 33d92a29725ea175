"""What every kind of run asks of its input files, and what the kinds have in common."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast, get_args

from rich.console import Console

from transduce.config import ModelConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import Kind
from transduce.errors import ConfigError, DataError
from transduce.files import user_path
from transduce.runs.defaults import TrainingDefaults, UserChoices
from transduce.runs.task import Task

File: TypeAlias = str | PathLike[str]
Files: TypeAlias = File | Sequence[File] | None
VOCABULARY = 8000


class RunInputs(Protocol):
    """The input files of a run and the options about them; `transduce.runs.prepare` calls these in order."""

    @property
    def task(self) -> Task:
        """The kind of run."""
        ...

    def check(self, choices: UserChoices, console: Console) -> None:
        """Raise an error for anything that cannot be used, before anything is written."""
        ...

    def make_tokenizer(self, choices: UserChoices, console: Console) -> TokenizerPair | None:
        """Return the tokenizer: new, from a file, or of the model to fine-tune; ``None`` for images."""
        ...

    def write(
        self, folder: Path, tokenizer: TokenizerPair | None, choices: UserChoices, console: Console
    ) -> None:
        """Write the prepared data to ``folder/train`` and ``folder/valid``."""
        ...

    def choose_model(self, choices: UserChoices, data: Any, tokenizer: TokenizerPair | None) -> ModelConfig:
        """Return the architecture: what was chosen, or what suits the training data."""
        ...

    def training_defaults(self, choices: UserChoices, data: Any) -> TrainingDefaults:
        """Return the training settings: what was chosen, and for the rest what suits the training data."""
        ...

    def summary(self, train: Any, valid: Any, tokenizer: TokenizerPair | None) -> str:
        """Return a line about the prepared data."""
        ...


def paths_of(files: Files) -> list[Path]:
    """Return the paths of one file, several or none."""
    if files is None:
        return []
    several = [files] if isinstance(files, (str, PathLike)) else files
    return [user_path(file) for file in several]


def kind_or_file(tokenizer: File | None, default: Kind) -> Kind | Path:
    """Return a kind of tokenizer to train, or the path of an existing one."""
    if tokenizer is None:
        return default
    if tokenizer in get_args(Kind):
        return cast("Kind", tokenizer)
    path = user_path(tokenizer)
    if not path.exists():
        kinds = ", ".join(get_args(Kind))
        raise DataError(
            f"there is no tokenizer {str(tokenizer)!r}", f"use {kinds}, or the path of a tokenizer.json"
        )
    return path


def refuse_together(reason: str, options: Mapping[str, object]) -> None:
    """Raise a `ConfigError` for the first option that was given, since it would have no effect."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise ConfigError(f"--{name} has no effect together with {reason}", f"leave --{name} out")
