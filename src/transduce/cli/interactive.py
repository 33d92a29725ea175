"""``transduce interactive``."""

import sys

from transduce.cli import options as o


def interactive(
    model: o.Models,
    beam: o.Beam = 4,
    length_penalty: o.LengthPenalty = 0.6,
    alternatives: o.Alternatives = 2,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Type a line, see its translation, alternatives, and what attends to what.

    Example: transduce interactive runs/en-de/final
    """
    import contextlib

    from rich.console import Console

    from transduce.cli.errors import warn
    from transduce.decoding.translator import Translator
    from transduce.inspection.interactive import converse

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (it lets the line be edited)
    if sys.stdin:  # what is not UTF-8 costs its own line alone
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    console = Console()
    translator = Translator.load(
        *model,
        beam=beam,
        length_penalty=length_penalty,
        nbest=1 + alternatives,
        precision=precision,
        device=device,
        on_warning=warn,
    )
    converse(translator, lambda: input("> "), console)
