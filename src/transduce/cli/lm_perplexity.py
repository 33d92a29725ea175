"""``transduce lm perplexity``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o
from transduce.cli import text_options as t


def perplexity(
    model: o.Model,
    text: Annotated[list[Path], typer.Option(metavar="FILE", help="Plain text; may be repeated.")],
    packed: t.Packed = True,
) -> None:
    """Say how well a language model predicts a text.

    Example: transduce lm perplexity runs/tales/final --text other-tales.txt
    """
    from transduce.evaluation.perplexity import measure_files

    found = measure_files(model, text, packed=packed)
    typer.echo(
        f"perplexity {found.a_token:.2f}, {found.bits_a_byte:.3f} bits a byte "
        f"({found.tokens:,} tokens, {found.bytes:,} bytes)"
    )
