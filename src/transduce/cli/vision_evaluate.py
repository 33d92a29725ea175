"""``transduce vision evaluate``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def evaluate(
    model: o.Model,
    images: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="A folder with one subfolder per class, an idx file, or an .npz with images and labels.",
            rich_help_panel=o.DATA,
        ),
    ],
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON object instead of the tables.", rich_help_panel=o.OUTPUT),
    ] = False,
) -> None:
    """Measure the accuracy of an image classifier: overall, for each class, and as a confusion matrix.

    Example: transduce vision evaluate runs/digits/final --images t10k-images-idx3-ubyte.gz
    """
    from json import dumps

    from transduce.evaluation.image_classes import evaluate_images
    from transduce.evaluation.image_table import print_images
    from transduce.terminal import output_console

    result = evaluate_images(model, images, precision=precision, device=device)
    if json:
        typer.echo(dumps(result.to_dict(), ensure_ascii=False))
    else:
        print_images(result, output_console())
