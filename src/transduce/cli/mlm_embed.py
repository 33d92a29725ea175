"""``transduce mlm embed``."""

from typing import Annotated, Literal

import typer

from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def embed(
    model: o.Model,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    pooling: Annotated[
        Literal["mean", "cls", "max", "mean_sqrt_len", "pooler"] | None,
        typer.Option(
            help="Mean over all tokens, state of [CLS], maximum in each dimension, sum divided by the square "
            "root of the length, or output of the pooler. Default: as the model was made for (mean).",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Scale each vector to length 1. Default: as the model was made for (no).",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Turn each line into a vector: one JSON list per line, or one array if --output ends in .npy.

    A line is one text, or two texts separated by a tab.

    Example: transduce mlm embed runs/tales-bert/final --input lines.txt --output vectors.npy
    """
    from transduce.cli.errors import warn
    from transduce.prediction.masked_text import MaskedTextModel
    from transduce.prediction.masked_text_files import embed_file

    masked_text = MaskedTextModel.load(model, precision=precision, device=device, on_warning=warn)
    embed_file(masked_text, input, output, pooling, normalize)
