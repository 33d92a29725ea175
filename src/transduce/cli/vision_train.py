"""``transduce vision train``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o

Images = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="A folder of images by class, an idx file, or an .npz (images, labels).",
    ),
]


def train(
    context: typer.Context,
    out: o.Out,
    images: Images = None,
    valid: Annotated[Path | None, typer.Option(metavar="PATH", help="The same, not trained on.")] = None,
    config: o.Config = None,
    size: Annotated[
        str | None, typer.Option(metavar="N|HxW", help="Bring the images of a folder to this size.")
    ] = None,
    hold_out: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="Share of the images to validate on, without --valid.")
    ] = 0.1,
    steps: o.Steps = None,
    epochs: Annotated[
        float | None, typer.Option(min=0.001, help="Instead of steps: times through the images.")
    ] = None,
    minutes: o.Minutes = None,
    tensorboard: o.Tensorboard = False,
    resume: o.Resume = False,
) -> None:
    """Train a Vision Transformer to tell classes of images apart.

    Example: transduce vision train --images photos --size 32 --out runs/photos

    Example: transduce vision train --images train-images-idx3-ubyte.gz --out runs/digits
    """
    from transduce.cli.resuming import offer
    from transduce.runs.train_images import train_images

    finished = train_images(**{**context.params, "resume": resume or offer(out)})
    if not finished:
        sys.exit(130)  # it has said so itself
