"""Options of ``transduce inspect``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from transduce.cli.options import DATA, OUTPUT, SEARCH

Sentence = Annotated[str | None, Argument(metavar="SENTENCE", help="Sentence to translate.")]
Target = Annotated[
    str | None,
    Option(metavar="TEXT", help="Show this translation instead of the model's own.", rich_help_panel=DATA),
]
Corpus = Annotated[
    tuple[Path, Path] | None,
    Option(
        metavar="SOURCE TARGET",
        help="Print statistics of every head over two aligned files, instead of a page about a sentence.",
        rich_help_panel=DATA,
    ),
]
Limit = Annotated[
    int | None,
    Option(
        min=1,
        max=10_000_000,
        metavar="N",
        help="Pairs of --corpus to read; default 200.",
        rich_help_panel=DATA,
    ),
]
Beam = Annotated[
    int | None, Option(min=1, max=1000, metavar="N", help="Beam size; default 4.", rich_help_panel=SEARCH)
]
Walk = Annotated[
    bool,
    Option(
        "--walk",
        help="Follow the sentence through the whole model, number by number, in a page that computes.",
        rich_help_panel=OUTPUT,
    ),
]
Out = Annotated[
    Path | None,
    Option(metavar="FILE", help="HTML page to write; default inspection.html.", rich_help_panel=OUTPUT),
]
Png = Annotated[
    Path | None,
    Option(metavar="FILE", help="Write encoder-decoder attention as a PNG image.", rich_help_panel=OUTPUT),
]
Layer = Annotated[
    int | None,
    Option(
        min=1, max=1000, metavar="N", help="Layer of the image; default the last.", rich_help_panel=OUTPUT
    ),
]
Json = Annotated[
    Path | None,
    Option(metavar="FILE", help="Write the statistics of --corpus to this file.", rich_help_panel=OUTPUT),
]
