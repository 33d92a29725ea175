"""``transduce import``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def import_model(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="File or folder with a model, or its id on the Hugging Face Hub."
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Model folder to write.", rich_help_panel=o.OUTPUT)
    ],
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Format of the model, if it is not recognised."),
    ] = None,
) -> None:
    """Convert a model of another toolkit into a model folder.

    Example: transduce import downloads/opus-mt-en-de --out models/en-de
    """
    from transduce.cli.errors import say
    from transduce.runs.exchange import import_model as run

    imported = run(path, out, format_name)
    config = imported.model.config
    count = sum(parameter.numel() for parameter in imported.model.parameters())
    say(f"{config.family}: {config.summary}, {count:,} parameters", err=True)
    for note in imported.notes:
        say(f"note: {note}", err=True)
    say(out)
