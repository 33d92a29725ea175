"""Texts of several lines into sentences."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

from transduce.data.sentences import sentence_spans

Span = tuple[int, int]  # (begin, end), code points

Splitting = Literal["all", "sentences", "lines", "none"]
"""Where a text is split: at the ends of sentences and at line breaks, at one of them, or nowhere."""

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def split_sentences(
    text: str, language: str | None = None, splitting: Splitting = "all", whole: Sequence[Span] = ()
) -> list[Span]:
    """Return where each sentence begins and ends, without the white space around it.

    ``whole`` are places, in order, that are never split, such as URLs.
    """
    lines = (
        [(0, len(text))] if splitting in {"sentences", "none"} else [m.span() for m in _LINE.finditer(text)]
    )
    spans = [
        (offset + begin, offset + end)
        for offset, stop in lines
        for begin, end in _spans(text[offset:stop], language, splitting)
    ]
    return _joined(spans, whole) if whole else spans


def _spans(line: str, language: str | None, splitting: Splitting) -> list[Span]:
    if splitting in {"all", "sentences"}:
        return sentence_spans(line, language)
    end = len(line.rstrip())
    return [(len(line) - len(line.lstrip()), end)] if end else []


def _joined(spans: list[Span], whole: Sequence[Span]) -> list[Span]:
    """Join sentences whose boundary is inside a place that must stay whole."""
    begins = [begin for begin, _ in whole]
    joined: list[Span] = []
    for begin, end in spans:
        if joined:
            last = joined[-1][1]
            index = bisect_right(begins, last) - 1
            if index >= 0 and begins[index] < last < whole[index][1]:
                joined[-1] = (joined[-1][0], end)
                continue
        joined.append((begin, end))
    return joined
