"""Options of ``transduce export``."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from transduce.cli import options as o

To = Annotated[
    Literal["huggingface", "ctranslate2", "onnx", "marian"], Option("--to", help="Format to write.")
]
Out = Annotated[
    Path,
    Option(
        metavar="DIR",
        help="Folder to write, new or empty; with --argos, the package to write.",
        rich_help_panel=o.OUTPUT,
    ),
]
Quantize = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Round the weights: int8 (ctranslate2, onnx); int8_float32, int16, float16, bfloat16 "
        "(ctranslate2).",
        rich_help_panel=o.OUTPUT,
    ),
]
Source = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Source text to compare with, instead of a few built-in lines.",
        rich_help_panel=o.DATA,
    ),
]
Reference = Annotated[
    Path | None,
    Option(metavar="FILE", help="Reference of --source, to compare BLEU, too.", rich_help_panel=o.DATA),
]
NoCheck = Annotated[
    bool,
    Option(
        "--no-check",
        help="Do not compare: for libraries that are not installed here.",
        rich_help_panel=o.OUTPUT,
    ),
]
Argos = Annotated[
    bool,
    Option(
        "--argos",
        help="Write a package for Argos Translate (.argosmodel) that holds the CTranslate2 model.",
        rich_help_panel=o.OUTPUT,
    ),
]
SentencePiece = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="The SentencePiece model that the tokenizer was read from; for --to marian, and for --argos "
        "instead of one that is written from the tokenizer.",
        rich_help_panel=o.DATA,
    ),
]
SourceLanguage = Annotated[
    str | None,
    Option(
        "--source-lang",
        metavar="CODE",
        help="Language of the source, for --argos and for models with several; default: the model's own.",
        rich_help_panel=o.DATA,
    ),
]
TargetLanguage = Annotated[
    str | None,
    Option(
        "--target-lang",
        metavar="CODE",
        help="Language of the target, for --argos and for models with several; default: the model's own.",
        rich_help_panel=o.DATA,
    ),
]
