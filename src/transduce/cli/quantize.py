"""``transduce quantize``."""

from pathlib import Path
from typing import Annotated

from typer import Option

from transduce.cli import options as o

Out = Annotated[
    Path, Option(metavar="DIR", help="Model folder to write, new or empty.", rich_help_panel=o.OUTPUT)
]
Source = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Source text: compare translations before and after.",
        rich_help_panel=o.DATA,
    ),
]
Reference = Annotated[
    Path | None,
    Option(metavar="FILE", help="Reference of --source: compare BLEU.", rich_help_panel=o.DATA),
]


def quantize(
    model: o.Model,
    out: Out,
    source: Source = None,
    reference: Reference = None,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
) -> None:
    """Round a model's matrices to int8, a quarter of the size, and measure the loss in quality.

    The new folder is used like any other, but no training can start from it.

    Example: transduce quantize runs/en-de/final --out models/en-de-int8

    Example: transduce quantize runs/en-de/final --source test.en --reference test.de --out models/en-de-int8
    """
    from transduce.cli.errors import say
    from transduce.runs.quantize import quantize_model

    done = quantize_model(
        model,
        out,
        source=source,
        reference=reference,
        source_language=source_language,
        target_language=target_language,
    )
    for finding in done.findings:
        say(finding, err=True)
    say(out)
