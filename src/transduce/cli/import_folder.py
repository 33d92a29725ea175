"""``transduce import``."""

from pathlib import Path
from typing import Annotated

import typer


def import_folder(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="With config.json, model.safetensors and a tokenizer."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The model folder to write.")],
) -> None:
    """Make a model folder of a GPT-2 or BERT model that Hugging Face's transformers saved.

    Example: transduce import downloads/gpt2 --out models/gpt2
    """
    from transduce.interop.folders import import_folder as run

    model = run(folder, out)
    count = sum(parameter.numel() for parameter in model.parameters())
    typer.echo(f"{model.config.family}: {model.config.summary}, {count:,} parameters", err=True)
    typer.echo(out)
