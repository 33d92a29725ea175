"""``transduce push``."""

from typing import Annotated

from typer import Argument, Option

from transduce.cli import options as o

Place = Annotated[
    str,
    Argument(
        metavar="PLACE",
        help="Repository of the Hugging Face hub, owner/name; or a folder, such as /mnt/models/en-de or "
        "./models/en-de.",
    ),
]
Private = Annotated[
    bool, Option("--private", help="Make a new repository private.", rich_help_panel=o.OUTPUT)
]


def push(model: o.Model, place: Place, private: Private = False) -> None:
    """Copy a complete, undamaged model folder with its model card to the hub or to another folder.

    Example: transduce push runs/en-de/final me/en-de

    Example: transduce push runs/en-de/final /mnt/models/en-de
    """
    from transduce.cli.errors import say
    from transduce.runs.sharing import push_model

    say(push_model(model, place, private=private))
