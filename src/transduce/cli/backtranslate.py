"""``transduce backtranslate``."""

from typing import Annotated

from typer import Option

from transduce.cli import options as o
from transduce.cli import search_options as s
from transduce.data.text_files import MAX_LINE_BYTES


def backtranslate(
    model: o.Models,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    tag: Annotated[
        str,
        Option(
            metavar="WORD",
            help='Put this in front of every synthetic source, for example "<BT>".',
            rich_help_panel=o.OUTPUT,
        ),
    ] = "",
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    beam: o.Beam = 4,
    nbest: s.NBest = 1,
    sample: o.Sample = False,
    temperature: o.Temperature = 1.0,
    top_k: o.TopK = 0,
    top_p: o.TopP = 1.0,
    seed: o.SamplingSeed = 1,
) -> None:
    """Make synthetic training pairs from text in the target language.

    MODEL translates in the reverse direction: from the target language into the source language. Every line
    of the output is a synthetic source, a tab and the original target, ready for `transduce train --pairs`.
    --source-lang is the language of the input, --target-lang that of the synthetic text.

    Example: transduce backtranslate runs/de-en/final --input more.de --output synthetic.tsv --tag "<BT>"
    """
    from rich.console import Console

    from transduce.cli.errors import warn
    from transduce.decoding.backtranslation import backtranslate_file
    from transduce.decoding.translator import Translator

    translator = Translator.load(
        *model,
        precision=precision,
        device=device,
        beam=beam,
        nbest=nbest,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        source_language=source_language,
        target_language=target_language,
        on_warning=warn,
    )
    backtranslate_file(translator, input, output, tag=tag, console=Console(stderr=True))
