"""``transduce vision evaluate``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def evaluate(
    model: o.Model,
    images: Annotated[
        Path,
        typer.Option(metavar="PATH", help="A folder of images by class, an idx file of images, or an .npz."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of the tables.")] = False,
) -> None:
    """Count how often a model is right: in all, class by class, and what it takes for what.

    Example: transduce vision evaluate runs/digits/final --images t10k-images-idx3-ubyte.gz
    """
    from json import dumps

    from rich.console import Console

    from transduce.evaluation.image_classes import evaluate_images
    from transduce.evaluation.image_report import print_images

    found = evaluate_images(model, images)
    typer.echo(dumps(found.to_dict(), ensure_ascii=False)) if json else print_images(found, Console())
