"""Options of ``transduce evaluate``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from transduce.cli.options import DATA, OUTPUT, SCORING

File = Path | None

Model = Annotated[File, Argument(metavar="MODEL", help="Model folder.")]
Reference = Annotated[
    list[Path],
    Option(metavar="FILE", help="Reference file; repeat for several references.", rich_help_panel=DATA),
]
Source = Annotated[
    File, Option(metavar="FILE", help="Source text for the model to translate.", rich_help_panel=DATA)
]
Hypotheses = Annotated[
    File,
    Option(
        metavar="FILE",
        help="Score the translations in this file, instead of a model's.",
        rich_help_panel=DATA,
    ),
]
Compare = Annotated[
    File,
    Option(
        metavar="OTHER",
        help="Compare with this model folder or file of translations.",
        rich_help_panel=DATA,
    ),
]
Alternatives = Annotated[
    bool,
    Option(
        "--alternatives",
        help="Each reference line lists alternative references, separated by tabs.",
        rich_help_panel=DATA,
    ),
]
Metrics = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        help="bleu, chrf, ter, exact (these four by default); the error rates per (phonemes), wer (words), "
        "ser (sentences); comet. May be repeated.",
        rich_help_panel=SCORING,
    ),
]
Lowercase = Annotated[bool, Option("--lowercase", help="Ignore case.", rich_help_panel=SCORING)]
Tokenize = Annotated[
    str,
    Option(
        metavar="NAME",
        help="Tokenization for BLEU: 13a, intl, none, char, zh, ja-mecab, ko-mecab, flores200, moses.",
        rich_help_panel=SCORING,
    ),
]
Language = Annotated[
    str | None,
    Option(metavar="CODE", help="Language of the references, for --tokenize moses.", rich_help_panel=SCORING),
]
CometModel = Annotated[
    str,
    Option(
        metavar="NAME|FILE",
        help="COMET model: a name on the Hugging Face Hub, or a checkpoint file.",
        rich_help_panel=SCORING,
    ),
]
Output = Annotated[
    File,
    Option(metavar="FILE", help="Write the model's translations to this file.", rich_help_panel=OUTPUT),
]
Json = Annotated[
    bool, Option("--json", help="Print a JSON object instead of the table.", rich_help_panel=OUTPUT)
]
