"""A text that is too long, in pieces."""

import re
from collections.abc import Callable

_ENDS = re.compile(r"(?<=[.!?;:…。！？؟।])\s+|(?<=[。！？])")  # of sentences and the like


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces that fit, cut after a sentence where that is possible, else between words, else anywhere."""
    if fits(text):
        return [text]
    for separated, glue in ((_ENDS.split(text), " "), (text.split(), " "), (list(text), "")):
        parts = [part for part in separated if part]
        if len(parts) > 1:
            return [piece for joined in _gathered(parts, glue, fits) for piece in split_text(joined, fits)]
    return [text]  # a single character, which no model can refuse


def _gathered(parts: list[str], glue: str, fits: Callable[[str], bool]) -> list[str]:
    """Neighbours together, as far as they fit."""
    pieces: list[str] = []
    for part in parts:
        longer = f"{pieces[-1]}{glue}{part}" if pieces else part
        if pieces and fits(longer):
            pieces[-1] = longer
        else:
            pieces.append(part)
    return pieces
