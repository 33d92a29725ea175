"""``transduce interactive``."""

import sys

from transduce.cli import options as o


def interactive(
    model: o.Models,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    beam: o.Beam = 4,
    length_penalty: o.LengthPenalty = 0.6,
    alternatives: o.Alternatives = 2,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Translate lines as you type them, with alternatives and the attention between tokens.

    Example: transduce interactive runs/en-de/final
    """
    import contextlib

    from rich.console import Console

    from transduce.cli.errors import warn
    from transduce.decoding.translator import Translator
    from transduce.inspection.interactive import translate_interactively

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (line editing and history)
    if sys.stdin:  # a line that is not UTF-8 must not end the command
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    translator = Translator.load(
        *model,
        beam=beam,
        length_penalty=length_penalty,
        nbest=1 + alternatives,
        precision=precision,
        device=device,
        source_language=source_language,
        target_language=target_language,
        on_warning=warn,
    )
    translate_interactively(translator, Console())
