"""``transduce mlm embed``."""

from typing import Annotated, Literal

import typer

from transduce.cli import options as o


def embed(
    model: o.Model,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
    pooling: Annotated[
        Literal["mean", "cls", "pooler"], typer.Option(help="Of all tokens, of [CLS], or the pooler's.")
    ] = "mean",
) -> None:
    """Turn every line into a vector: a JSON list a line, or one array if --output ends in .npy.

    A line is a text, or two texts with a tab between them.

    Example: transduce mlm embed runs/tales-bert/final --input lines.txt --output vectors.npy
    """
    from transduce.prediction.masked_text import MaskedText
    from transduce.prediction.masked_text_files import embed_file

    loaded = MaskedText.load(model, warn=lambda message: typer.echo(f"warning: {message}", err=True))
    embed_file(loaded, input, output, pooling)
