"""``transduce lm perplexity``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o
from transduce.cli import text_options as t
from transduce.data.text_files import MAX_LINE_BYTES


def perplexity(
    model: o.Model,
    text: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Plain text; repeat for several files.", rich_help_panel=o.DATA),
    ],
    packed: t.Packed = True,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    device: o.Device = "auto",
) -> None:
    """Measure the perplexity of a text under a language model, which computes in float32.

    Example: transduce lm perplexity runs/tales/final --text other-tales.txt
    """
    from transduce.evaluation.perplexity import file_perplexity

    result = file_perplexity(model, text, packed=packed, device=device)
    typer.echo(
        f"perplexity {result.per_token:.2f} per token, {result.bits_per_byte:.3f} bits per byte "
        f"({result.tokens:,} tokens, {result.bytes:,} bytes)"
    )
