"""Translations for tests: none, in capitals, and with links in any order."""

import re

from transduce.serving.segments import Link, Segment, TranslatedSegment


def identity(segments):
    return [TranslatedSegment(segment.text) for segment in segments]


def words_of(text):
    """(begin, end) of the words of a text."""
    spans, begin = [], 0
    for word in text.split():
        begin = text.index(word, begin)
        spans.append((begin, begin + len(word)))
        begin += len(word)
    return spans


def reordered(segment: Segment, order) -> TranslatedSegment:
    """Translate each word into capitals, in another order, and link it to its source."""
    spans = words_of(segment.text)
    text, links = "", []
    for index in order:
        begin, end = spans[index]
        word = segment.text[begin:end].upper()
        text += " " * bool(text)
        links.append(Link(begin, end, len(text), len(text) + len(word)))
        text += word
    return TranslatedSegment(text, links)


def backwards(segment: Segment) -> TranslatedSegment:
    return reordered(segment, range(len(words_of(segment.text)) - 1, -1, -1))


def shouted(segment: Segment, with_links=True) -> TranslatedSegment:
    """Translate into capitals (of ASCII), word by word."""
    links = [Link(*match.span(), *match.span()) for match in re.finditer(r"\w+|[^\w\s]", segment.text)]
    return TranslatedSegment(segment.text.upper(), links if with_links else ())
