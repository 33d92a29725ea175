"""Options that the commands for language models, masked language models and text classifiers share."""

from pathlib import Path
from typing import Annotated

from typer import Option

from transduce.cli.options import DATA, MODEL

Text = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Training text, one text per line, plain or gzip. Repeat for several files.",
        rich_help_panel=DATA,
    ),
]
Valid = Annotated[list[Path] | None, Option(metavar="FILE", help="Validation file.", rich_help_panel=DATA)]
Labelled = Annotated[
    list[Path] | None,
    Option(
        "--pairs",
        metavar="FILE",
        help="Training file with tab-separated lines: text, class; or text, second text, class.",
        rich_help_panel=DATA,
    ),
]
Packed = Annotated[
    bool,
    Option(
        "--packed/--lines",
        help="Join all lines into one long text, or treat each line as a text of its own.",
        rich_help_panel=DATA,
    ),
]
HoldOut = Annotated[
    float,
    Option(
        metavar="X",
        min=0.0001,
        max=0.5,
        help="Fraction of the text to hold out for validation if --valid is not given.",
        rich_help_panel=DATA,
    ),
]
GptPreset = Annotated[
    str | None,
    Option("--preset", metavar="NAME", help="Model size: gpt-small or gpt.", rich_help_panel=MODEL),
]
BertPreset = Annotated[
    str | None,
    Option("--preset", metavar="NAME", help="Model size: bert-small or bert.", rich_help_panel=MODEL),
]
FromModel = Annotated[
    Path | None,
    Option("--from", metavar="MODEL", help="Model folder to continue training from.", rich_help_panel=MODEL),
]
Context = Annotated[
    int | None,
    Option(
        "--max-length",
        metavar="N",
        min=8,
        max=10_000_000,
        help="Context size: longest sequence in tokens.",
        rich_help_panel=MODEL,
    ),
]
