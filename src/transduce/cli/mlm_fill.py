"""``transduce mlm fill``."""

from typing import Annotated

import typer

from transduce.cli import options as o


def fill(
    model: o.Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="With [MASK] where a word is missing.")],
    count: Annotated[int, typer.Option(min=1, help="Guesses for each mask.")] = 5,
) -> None:
    """Say what may stand for each [MASK], and how likely it is.

    Example: transduce mlm fill runs/tales-bert/final "The [MASK] sat."
    """
    from transduce.prediction.masked_text import MaskedText

    for number, guesses in enumerate(MaskedText.load(model).fill(text, count=count), start=1):
        for one in guesses:
            typer.echo(f"{number}\t{one.probability:.4f}\t{one.token}\t{one.text}")
