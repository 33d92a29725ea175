"""``transduce report``."""

from pathlib import Path
from typing import Annotated

import typer


def report(run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]) -> None:
    """Draw a run's curves as PNG, and write a model card (README.md) into its model folders.

    Works while the run goes on, too. A README.md written by hand is never changed.

    Example: transduce report runs/en-de
    """
    from transduce.runs.reporting.report import write_report

    for path in write_report(run, say=lambda message: typer.echo(message, err=True)):
        typer.echo(path)
