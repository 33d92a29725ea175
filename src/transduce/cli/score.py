"""``transduce score``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def score(
    model: o.Model,
    source: Annotated[
        Path, typer.Option(metavar="FILE", help="Source text, plain or gzip.", rich_help_panel=o.DATA)
    ],
    target: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Target text with the same number of lines.", rich_help_panel=o.DATA
        ),
    ],
    format: Annotated[  # noqa: A002 (the option's name)
        Literal["text", "json"],
        typer.Option(help="json: also the tokens and their log-probabilities.", rich_help_panel=o.OUTPUT),
    ] = "text",
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    device: o.Device = "auto",
) -> None:
    """Print the log-probability of given targets, one line per pair.

    The perplexity of the corpus comes last: on standard error, or with --format json as the last object. The
    model computes in float32, because a lower precision would change the log-probabilities.

    Example: transduce score runs/en-de/final --source test.en --target test.de
    """
    from rich.console import Console

    from transduce.evaluation.score_files import score_files

    score_files(
        model,
        source,
        target,
        source_language=source_language,
        target_language=target_language,
        layout=format,
        device=device,
        console=Console(stderr=True),
    )
