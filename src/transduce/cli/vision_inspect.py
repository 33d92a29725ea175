"""``transduce vision inspect``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def inspect(
    model: o.Model,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image file.")],
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The picture; attention.png if nothing is named.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as one HTML page.")] = None,
) -> None:
    """See where a model looks: the attention of every layer and head over an image, and its rollout.

    Example: transduce vision inspect runs/photos/final cat.jpg --png attention.png
    """
    from transduce.inspection.image_command import inspect_file

    for path in inspect_file(model, image, png, out):
        typer.echo(path)
