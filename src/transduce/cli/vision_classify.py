"""``transduce vision classify``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def classify(
    model: o.Model,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE ...", help="Files, or folders of them.")],
    top: Annotated[int, typer.Option(min=1, help="So many guesses an image.")] = 1,
    format: o.Format = "text",  # noqa: A002 (the option's name)
) -> None:
    """Say what is on images: a line each with the file, the class and its probability, parted by tabs.

    Files that cannot be read are named and left out; the exit code is 2 then.

    Example: transduce vision classify runs/photos/final holiday/*.jpg
    """
    import json
    from dataclasses import asdict

    from transduce.evaluation.image_classes import classify as run

    unreadable = []

    def skip(error: Exception) -> None:
        unreadable.append(error)
        typer.echo(f"error: {error}", err=True)

    for found in run(model, images, top=top, skip=skip):
        if format == "json":
            typer.echo(json.dumps(asdict(found), ensure_ascii=False))
        else:
            guesses = "\t".join(f"{guess.label}\t{guess.probability:.4f}" for guess in found.guesses)
            typer.echo(f"{found.file}\t{guesses}")
    if unreadable:
        raise typer.Exit(2)
