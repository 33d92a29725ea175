"""``transduce import``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options as o


def import_folder(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder with config.json, model.safetensors and a tokenizer."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Model folder to write.", rich_help_panel=o.OUTPUT)
    ],
) -> None:
    """Convert a GPT-2 or BERT model saved by Hugging Face transformers into a model folder.

    Example: transduce import downloads/gpt2 --out models/gpt2
    """
    from transduce.cli.errors import say
    from transduce.interop.folders import import_folder as run

    model = run(folder, out)
    count = sum(parameter.numel() for parameter in model.parameters())
    say(f"{model.config.family}: {model.config.summary}, {count:,} parameters", err=True)
    say(out)
