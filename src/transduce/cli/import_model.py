"""``transduce import``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli import options as o

FormatName = Literal[
    "ctranslate2",
    "marian",
    "sentence-transformers",
    "timm",
    "huggingface",
    "eole",
    "joeynmt",
    "sockeye",
    "fairseq",
    "opennmt",
]


def import_model(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="File or folder with a model, or its id on the Hugging Face Hub."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Model folder to write, new or empty.", rich_help_panel=o.OUTPUT),
    ],
    format_name: Annotated[
        FormatName | None,
        typer.Option(
            "--format",
            help="Format of the model, if it is not recognised, or if a folder holds several.",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FILE",
            help="Mapping file (TOML) for the state dict of a model with torch.nn.Transformer: "
            "which tensor is what.",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            "--source-lang",
            metavar="CODE",
            help="Language of the source; default: as the model's files tell, if they do.",
            rich_help_panel=o.DATA,
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            "--target-lang",
            metavar="CODE",
            help="Language of the target, likewise. For a model with several, both set its default.",
            rich_help_panel=o.DATA,
        ),
    ] = None,
) -> None:
    """Convert a model of another toolkit into a model folder.

    Example: transduce import downloads/opus-mt-en-de --out models/en-de
    """
    from transduce.cli.errors import say
    from transduce.runs.exchange import import_model as run

    report = run(
        path, out, format_name, names, source_language=source_language, target_language=target_language
    )
    model = report.imported.model
    count = sum(parameter.numel() for parameter in model.parameters())
    say(f"{model.config.family}: {model.config.summary}, {count:,} parameters", err=True)
    for note in report.imported.notes:
        say(f"note: {note}", err=True)
    for sample in report.samples:
        say(f"  {sample.source} → {sample.translation}", err=True)
        if sample.theirs not in (None, sample.translation):
            say(f"  {report.imported.library}: {sample.theirs}", err=True)
    for line in report.findings:
        say(line, err=True)
    say(out)
