"""Options that the commands for images share."""

from pathlib import Path
from typing import Annotated

from typer import Option

from transduce.cli.options import DATA, MODEL

Images = Annotated[
    Path | None,
    Option(
        metavar="PATH",
        help="A folder with one subfolder per class, an idx file, or an .npz with images and labels.",
        rich_help_panel=DATA,
    ),
]
Valid = Annotated[
    Path | None,
    Option(metavar="PATH", help="Validation images, in one of the same forms.", rich_help_panel=DATA),
]
Size = Annotated[
    str | None,
    Option(
        metavar="N|HxW",
        help="Scale the images of a folder to this height and width.",
        rich_help_panel=DATA,
    ),
]
HoldOut = Annotated[
    float,
    Option(
        metavar="X",
        min=0.0001,
        max=0.5,
        help="Fraction of the images to hold out for validation if --valid is not given.",
        rich_help_panel=DATA,
    ),
]
Preset = Annotated[
    str | None, Option(metavar="NAME", help="Model size: vit-small or vit.", rich_help_panel=MODEL)
]
