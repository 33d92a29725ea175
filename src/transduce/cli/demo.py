"""``transduce demo``."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    task: Annotated[
        Literal["dates", "numbers", "copy", "reverse"], typer.Option(help="Task to learn.")
    ] = "dates",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the data and the model.", show_default="a new temporary folder"
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000_000, help="Number of training steps.")
    ] = 1200,
) -> None:
    """Train a small model in about two minutes and see what it learns.

    By default, it learns to rewrite dates in 28 languages in ISO 8601 format.

    Example: transduce demo --task reverse
    """
    from transduce.runs.demo import run_demo
    from transduce.terminal import output_console

    run_demo(task, out, steps, output_console())
