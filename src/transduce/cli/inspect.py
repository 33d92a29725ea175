"""``transduce inspect``."""

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    sentence: Annotated[str | None, typer.Argument(metavar="SENTENCE", help="What to translate.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Look at this translation instead of the model's own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; inspection.html if nothing is named.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Encoder-decoder attention as a picture.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="Of the picture; the last if not given.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses at a time; 4 if not given.")] = None,
    corpus: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SOURCE TARGET", help="Two aligned files: what every head does over them."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Pairs to read; 200 if not given.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what --corpus finds here.")] = None,
) -> None:
    """See inside a model: the attention and the search of a sentence as one HTML page, or all heads.

    Example: transduce inspect runs/en-de/final "A man sleeps." --out page.html

    Example: transduce inspect runs/en-de/final --corpus valid.en valid.de
    """
    from transduce.inspection.command import inspect as run

    for path in run(**context.params):
        typer.echo(path)
