"""A text that is too long, in pieces."""

import re
from collections.abc import Callable

_ENDS = re.compile(r"(?<=[.!?…؟।])\s+(?![a-z])|(?<=[。！？])\s*")  # of sentences
_PAUSES = re.compile(r"(?<=[,;:،])\s+")
_WIDE_PAUSES = re.compile(r"(?<=[，；：、])")  # in scripts that have no spaces
_SHORT = 16  # characters: an abbreviation, perhaps, after which no sentence ends


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces that fit: sentences, each by itself, as a model has seen them in training; of one that is too
    long as much as fits, up to a pause if possible, else to the end of a word, else anywhere.
    """
    if fits(text):
        return [text]
    sentences = _sentences(text)
    if len(sentences) > 1:
        return [piece for sentence in sentences for piece in split_text(sentence, fits)]
    for separated, glue in (
        (_PAUSES.split(text), " "),
        (_WIDE_PAUSES.split(text), ""),
        (text.split(), " "),
        (list(text), ""),
    ):
        parts = [part for part in separated if part]
        if len(parts) > 1:
            return [piece for joined in _gathered(parts, glue, fits) for piece in split_text(joined, fits)]
    return [text]  # a single character, which no model can refuse


def _sentences(text: str) -> list[str]:
    """What is short goes with the next one."""
    pieces, begin = [], 0
    for end in (found.end() for found in _ENDS.finditer(text)):
        if end - begin >= _SHORT:
            pieces.append(text[begin:end])
            begin = end
    return [piece.strip() for piece in (*pieces, text[begin:]) if piece.strip()]


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
