"""``transduce pull``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from transduce.cli import options as o

Place = Annotated[
    str,
    Argument(
        metavar="PLACE",
        help="Repository of the Hugging Face hub, owner/name; or a model folder.",
    ),
]
Out = Annotated[
    Path, Option(metavar="DIR", help="Model folder to write, new or empty.", rich_help_panel=o.OUTPUT)
]


def pull(place: Place, out: Out) -> None:
    """Copy a model folder from the hub or from another folder, and check that nothing is damaged.

    For models of other toolkits, see transduce import.

    Example: transduce pull me/en-de --out models/en-de
    """
    from transduce.cli.errors import say
    from transduce.runs.sharing import pull_model

    say(pull_model(place, out))
