"""``transduce vision inspect``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def inspect(
    model: o.Model,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="Image file.")],
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="PNG image to write; default attention.png.", rich_help_panel=o.OUTPUT
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="HTML page to write.", rich_help_panel=o.OUTPUT)
    ] = None,
    device: o.Device = "auto",
) -> None:
    """Show the attention of every layer and head over an image, and the attention rollout.

    The model computes in float32, so that all weights are exact.

    Example: transduce vision inspect runs/photos/final cat.jpg --png attention.png
    """
    from transduce.cli.errors import say
    from transduce.inspection.image_command import inspect_file

    for path in inspect_file(model, image, png, out, device=device):
        say(path)
