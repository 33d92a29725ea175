"""Options that the commands for plain text share."""

from pathlib import Path
from typing import Annotated

from typer import Option

Text = Annotated[list[Path] | None, Option(metavar="FILE", help="Plain text, a text a line; may be gzip.")]
Valid = Annotated[list[Path] | None, Option(metavar="FILE", help="The same, not trained on.")]
Labelled = Annotated[
    list[Path] | None,
    Option("--pairs", metavar="FILE", help="Lines of text, tab, class; or text, tab, text, tab, class."),
]
Out = Annotated[Path, Option(metavar="DIR", help="The run folder.")]
GptPreset = Annotated[str | None, Option("--preset", metavar="NAME", help="gpt-small or gpt.")]
BertPreset = Annotated[str | None, Option("--preset", metavar="NAME", help="bert-small or bert.")]
Start = Annotated[Path | None, Option("--from", metavar="MODEL", help="A model folder to go on from.")]
Context = Annotated[int | None, Option("--max-length", min=8, help="Tokens that are read at a time.")]
HoldOut = Annotated[float, Option(min=0.0001, max=0.5, help="Share to validate on, without --valid.")]
Packed = Annotated[bool, Option("--packed/--lines", help="All lines as one text, or each by itself.")]
Tensorboard = Annotated[bool, Option("--tensorboard", help="Write DIR/tensorboard too.")]
Resume = Annotated[bool, Option("--resume", help="Go on with the run in DIR, if there is one.")]
