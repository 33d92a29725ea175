"""``transduce merge``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Adapter = Annotated[
    Path, Argument(metavar="ADAPTER", help="Adapter folder: best or final of a run with --adapter.")
]
Out = Annotated[Path, Option(metavar="MODEL", help="Model folder to write, new or empty.")]
Base = Annotated[
    Path | None,
    Option(
        metavar="MODEL", help="Model folder that the adapter was trained with, if it is in another place now."
    ),
]


def merge(adapter: Adapter, out: Out, base: Base = None) -> None:
    """Merge an adapter and the model it was trained with into one model folder.

    An adapter folder can be used like a model folder without merging. Merge it to share the model, to
    export it, or to adapt it once more.

    Example: transduce merge runs/medical/final --out models/medical
    """
    from transduce.artifact import merge_adapter
    from transduce.artifact.staging import require_new
    from transduce.cli.errors import say
    from transduce.files import folder_path

    require_new(folder_path(out))
    merge_adapter(adapter, out, base=base)
    say(f"wrote {out}")
