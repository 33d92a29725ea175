"""``transduce demo``."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    task: Annotated[
        Literal["dates", "numbers", "copy", "reverse"], typer.Option(help="What to learn.")
    ] = "dates",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to put it; a new place if not given.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How long to train.")] = 1200,
) -> None:
    """Watch a model learn: dates in 28 languages to ISO 8601, say, in about two minutes.

    Example: transduce demo --task reverse
    """
    from rich.console import Console

    from transduce.runs.demo import demo as run

    run(task, out, steps, Console())
