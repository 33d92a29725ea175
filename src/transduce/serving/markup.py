"""HTML and XML into tokens, leniently: anything is accepted, nothing is lost, in linear time."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
_IN_TAG = re.compile(r"[>\"']")
_ATTRIBUTE = re.compile(r"(?<![^\s\"'/])([^\s\"'<>/=]+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)")
_VOID = frozenset(
    (
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    )
)
_RAW = frozenset(("script", "style", "textarea", "xmp", "iframe", "noembed", "noframes"))


class Kind(Enum):
    """What a token is."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    EMPTY = auto()
    """An element without content."""
    OTHER = auto()
    """A comment, a declaration, CDATA, or the content of a script."""


class Token(NamedTuple):
    """A piece of markup, or of text between it."""

    kind: Kind
    begin: int
    end: int
    name: str = ""  # of a tag; in lower case if it is HTML


@dataclass(frozen=True)
class Element:
    """What belongs to a tag that opens an element."""

    last: int  # the last token of the element
    is_closed: bool  # whether that is its closing tag


class _Finder:
    """Finds strings from growing places on; what was searched once is not searched again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: dict[str, int] = {}

    def __call__(self, needle: str, begin: int) -> int:
        """Return the next place of a string, or -1."""
        place = self.found.get(needle, -2)
        if place == -1 or place >= begin:
            return place
        self.found[needle] = place = self.text.find(needle, begin)
        return place


def tokenize(text: str, is_xml: bool = False) -> list[Token]:
    """Return the tokens of a text, which together are the text.

    A ``<`` that opens nothing is text. What is never closed (a comment, a script) goes on to the end, as in
    browsers.
    """
    tokens: list[Token] = []
    find = _Finder(text)
    written = place = 0
    while (place := find("<", place)) >= 0:
        token = _markup(text, place, find, is_xml)
        if token is None:
            place += 1
            continue
        if written < place:
            tokens.append(Token(Kind.TEXT, written, place))
        tokens.append(token)
        written = place = token.end
        if token.kind is Kind.OPEN and token.name in _RAW and not is_xml:
            closing = re.compile(f"</{token.name}", re.IGNORECASE).search(text, place)
            place = closing.start() if closing else len(text)
            if written < place:
                tokens.append(Token(Kind.OTHER, written, place))
            written = place
    if written < len(text):
        tokens.append(Token(Kind.TEXT, written, len(text)))
    return tokens


def _markup(text: str, begin: int, find: _Finder, is_xml: bool) -> Token | None:
    """Return what begins with the ``<`` at a place, or nothing if it is text."""
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<?", ">"), ("<!", ">")):
        if text.startswith(opening, begin):
            end = find(closing, begin + len(opening))
            if end >= 0:
                return Token(Kind.OTHER, begin, end + len(closing))
            if opening == "<!--":
                return Token(Kind.OTHER, begin, len(text))
    if find(">", begin) < 0:
        return None
    name = _NAME.match(text, begin)
    if name is None:
        return None
    end = _tag_end(text, name.end(), find)
    key = name[1] if is_xml else name[1].lower()
    if text[begin + 1] == "/":
        return Token(Kind.CLOSE, begin, end, key)
    is_empty = text[end - 2] == "/" or (key in _VOID and not is_xml)
    return Token(Kind.EMPTY if is_empty else Kind.OPEN, begin, end, key)


def _tag_end(text: str, place: int, find: _Finder) -> int:
    """Return where a tag ends; a ``>`` in a quoted value of an attribute does not end it."""
    while mark := _IN_TAG.search(text, place):
        if mark[0] == ">":
            return mark.end()
        place = mark.end()
        if _is_value(text, mark.start()):
            closing = find(mark[0], place)
            place = closing + 1 if closing >= 0 else place
    return len(text)


def _is_value(text: str, quote: int) -> bool:
    before = quote - 1
    while text[before] in " \t\n\r\f" and quote - before < 16:
        before -= 1
    return text[before] == "="


def match_elements(tokens: list[Token]) -> tuple[dict[int, Element], dict[int, int]]:
    """Return the element of each opening tag, and for each closing tag that closes one its opening tag.

    An element that is never closed ends where the one around it does.
    """
    elements: dict[int, Element] = {}
    openings: dict[int, int] = {}
    stack: list[int] = []
    counts: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.kind is Kind.OPEN:
            stack.append(index)
            counts[token.name] = counts.get(token.name, 0) + 1
        elif token.kind is Kind.CLOSE and counts.get(token.name):
            while True:
                opening = stack.pop()
                name = tokens[opening].name
                counts[name] -= 1
                if name == token.name:
                    break
                elements[opening] = Element(index - 1, is_closed=False)
            elements[opening] = Element(index, is_closed=True)
            openings[index] = opening
    for opening in stack:
        elements[opening] = Element(len(tokens) - 1, is_closed=False)
    return elements, openings


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a tag that have values."""
    return {name.lower(): value.strip("\"'") for name, value in _ATTRIBUTE.findall(tag)}
