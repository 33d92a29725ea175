"""``transduce export``."""

from transduce.cli import export_options as e
from transduce.cli import options as o


def export(
    model: o.Model,
    to: e.To,
    out: e.Out,
    quantize: e.Quantize = None,
    source: e.Source = None,
    reference: e.Reference = None,
    no_check: e.NoCheck = False,
    argos: e.Argos = False,
    sentencepiece: e.SentencePiece = None,
    source_lang: e.SourceLanguage = None,
    target_lang: e.TargetLanguage = None,
) -> None:
    """Convert a model folder for another library, and prove with that library that it computes the same.

    Nothing is written if log-probabilities, greedy decoding or beam search differ.

    Example: transduce export runs/en-de/final --to ctranslate2 --out en-de-ct2

    Example: transduce export models/zh-en --to ctranslate2 --quantize int8 --argos
    --source-lang zh --target-lang en --out zh-en.argosmodel
    """
    from transduce.cli.errors import say
    from transduce.runs.export import Package, export_model

    done = export_model(
        model,
        out,
        to,
        quantize=quantize,
        source=source,
        reference=reference,
        check=not no_check,
        package=Package(source_lang, target_lang) if argos else None,
        sentencepiece=sentencepiece,
        languages=None if argos else (source_lang, target_lang),
    )
    for finding in done.findings or ["not compared"]:
        say(finding, err=True)
    for note in done.notes:
        say(f"note: {note}", err=True)
    say(out)
