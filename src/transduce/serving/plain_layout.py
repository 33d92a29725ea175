"""Plain texts: their sentences, and the white space between them, which survives exactly."""

import re
from collections.abc import Sequence

from transduce.serving.layout import Layout
from transduce.serving.placeholders import find_protected
from transduce.serving.segments import Segment
from transduce.serving.sentences import Span, Splitting, split_sentences

_LINE_BREAK = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACE = re.compile(r"\s+")


def plain_layout(
    text: str,
    language: str | None = None,
    do_not_translate: Sequence[str] = (),
    splitting: Splitting = "all",
    protect: bool = True,
) -> Layout:
    """Return the sentences of a plain text; ``protect`` placeholders, URLs and the like.

    A sentence that has nothing to translate, such as a URL alone or a line of asterisks, is no segment. Line
    breaks inside a sentence, where ``splitting`` allows them, are read as spaces.
    """
    protected = find_protected(text, do_not_translate) if protect else []
    segments = []
    first = 0
    for begin, end in split_sentences(text, language, splitting, protected):
        while first < len(protected) and protected[first][1] <= begin:
            first += 1
        last = first
        while last < len(protected) and protected[last][0] < end:
            last += 1
        segment = _segment(text, begin, end, protected[first:last])
        if segment is not None:
            segments.append(segment)
    return Layout(text, segments)


def _segment(text: str, begin: int, end: int, protected: list[Span]) -> Segment | None:
    places = [(max(low, begin) - begin, min(high, end) - begin) for low, high in protected]
    sentence = text[begin:end]
    if not has_words(sentence, places):
        return None
    if _LINE_BREAK.search(sentence):
        sentence, places = _on_one_line(sentence, places)
    return Segment(sentence, begin, end, places=tuple(places))


def has_words(text: str, places: Sequence[Span] = ()) -> bool:
    """Tell whether there is a letter or a digit outside some places."""
    position = 0
    for begin, end in (*places, (len(text), len(text))):
        if any(map(str.isalnum, text[position:begin])):
            return True
        position = end
    return False


def _on_one_line(text: str, places: Sequence[Span]) -> tuple[str, list[Span]]:
    """Replace line breaks by spaces outside the places."""
    parts: list[str] = []
    moved: list[Span] = []
    length, position = 0, 0
    for begin, end in (*places, (len(text), len(text))):
        between = _SPACE.sub(_space, text[position:begin])
        parts += [between, text[begin:end]]
        length += len(between)
        moved.append((length, length + end - begin))
        length += end - begin
        position = end
    return "".join(parts), moved[:-1]


def _space(match: re.Match[str]) -> str:
    return " " if _LINE_BREAK.search(match[0]) else match[0]
