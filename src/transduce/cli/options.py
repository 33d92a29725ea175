"""Options that several commands share: the files of a parallel corpus."""

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[list[Path] | None, typer.Option(metavar="FILE")]
Source = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Source text, plain or gzip.")]
Target = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Target text, as many lines.")]
Pairs = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Both sides in one .tsv or .jsonl.")]
