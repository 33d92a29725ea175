"""``transduce mlm fill``."""

from typing import Annotated

import typer

from transduce.cli import options as o


def fill(
    model: o.Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text with [MASK] in place of words.")],
    count: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=1_000_000, help="Number of candidates per mask.", rich_help_panel=o.OUTPUT
        ),
    ] = 5,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Predict the words behind each [MASK]: mask number, probability, token and text, separated by tabs.

    Example: transduce mlm fill runs/tales-bert/final "The [MASK] sat."
    """
    from transduce.prediction.masked_text import MaskedTextModel

    masked_text = MaskedTextModel.load(model, precision=precision, device=device)
    for number, fillings in enumerate(masked_text.fill(text, count=count), start=1):
        for filling in fillings:
            typer.echo(f"{number}\t{filling.probability:.4f}\t{filling.token}\t{filling.text}")
