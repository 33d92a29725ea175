"""``transduce vision classify``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def classify(
    model: o.Model,
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE", help="Image files, or folders that contain them.")
    ],
    top: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=1_000_000,
            help="Number of classes to print per image.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = 1,
    format: o.Format = "text",  # noqa: A002 (the option's name)
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Classify images. Print one line per image: file, class and probability, separated by tabs.

    Unreadable files are reported and skipped; the exit code is then 2.

    Example: transduce vision classify runs/photos/final holiday/*.jpg
    """
    import json
    from dataclasses import asdict

    from transduce.cli.errors import say
    from transduce.errors import printable
    from transduce.prediction.image_classes import ImageClassifier, UnreadableImage

    failed = False
    for image in ImageClassifier.load(model, precision=precision, device=device).stream(images, top=top):
        if isinstance(image, UnreadableImage):
            say(f"error: {image.error}", err=True)
            failed = True
        elif format == "json":
            typer.echo(json.dumps(asdict(image), ensure_ascii=False))
        else:
            classes = (f"{printable(each.label)}\t{each.probability:.4f}" for each in image.classes)
            typer.echo("\t".join([printable(str(image.file)), *classes]))
    if failed:
        raise typer.Exit(2)
