"""``transduce export``."""

from pathlib import Path
from typing import Annotated

from typer import Option

from transduce.cli import options as o

To = Annotated[str, Option("--to", metavar="NAME", help="huggingface, ctranslate2, onnx or marian.")]
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
        help="The SentencePiece model that the tokenizer was read from; for --argos.",
        rich_help_panel=o.DATA,
    ),
]
SourceLanguage = Annotated[
    str | None,
    Option(
        "--source-lang", metavar="CODE", help="Language of the source; for --argos.", rich_help_panel=o.DATA
    ),
]
TargetLanguage = Annotated[
    str | None,
    Option(
        "--target-lang", metavar="CODE", help="Language of the target; for --argos.", rich_help_panel=o.DATA
    ),
]


def export(
    model: o.Model,
    to: To,
    out: Out,
    quantize: Quantize = None,
    source: Source = None,
    reference: Reference = None,
    no_check: NoCheck = False,
    argos: Argos = False,
    sentencepiece: SentencePiece = None,
    source_lang: SourceLanguage = None,
    target_lang: TargetLanguage = None,
) -> None:
    """Convert a model folder for another library, and prove with that library that it computes the same.

    Nothing is written if log-probabilities, greedy decoding or beam search differ.

    Example: transduce export runs/en-de/final --to ctranslate2 --out en-de-ct2

    Example: transduce export models/zh-en --to ctranslate2 --quantize int8 --argos
    --sentencepiece spm.model --source-lang zh --target-lang en --out zh-en.argosmodel
    """
    from transduce.cli.errors import say
    from transduce.errors import ConfigError
    from transduce.runs.export import Package, export_model

    package = None
    if argos:
        if sentencepiece is None or source_lang is None or target_lang is None:
            raise ConfigError(
                "an Argos package needs its tokenizer and its languages",
                "add --sentencepiece, --source-lang and --target-lang",
            )
        package = Package(source_lang, target_lang, sentencepiece)
    done = export_model(
        model,
        out,
        to,
        quantize=quantize,
        source=source,
        reference=reference,
        check=not no_check,
        package=package,
    )
    for finding in done.findings or ["not compared"]:
        say(finding, err=True)
    for note in done.notes:
        say(f"note: {note}", err=True)
    say(out)
