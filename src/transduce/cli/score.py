"""``transduce score``."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def score(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    source: Annotated[Path, typer.Option(metavar="FILE", help="Source text, plain or gzip.")],
    target: Annotated[Path, typer.Option(metavar="FILE", help="Target text, as many lines.")],
    format: Annotated[  # noqa: A002 (the option's name)
        Literal["text", "json"], typer.Option(help="json: tokens and their log-probabilities, too.")
    ] = "text",
) -> None:
    """Say how likely a model finds given targets: the log-probability of each, a line a pair.

    The corpus' perplexity is said at the end: on standard error, or as json's last object.

    Example: transduce score runs/en-de/final --source test.en --target test.de
    """
    from rich.console import Console

    from transduce.evaluation.score_files import score_files

    score_files(model, source, target, format, Console(stderr=True))
