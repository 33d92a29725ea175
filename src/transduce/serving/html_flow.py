"""A run of text and inline tags: what a reader sees as one paragraph, or as a part of one."""

import re
from bisect import bisect_right
from dataclasses import replace
from html import unescape
from typing import NamedTuple

from transduce.serving.segments import Marker, Segment
from transduce.serving.sentences import Span

_SPACES = " \t\n\r\f"
_CHUNK = re.compile(
    rf"(?P<entity>&(?:#\d{{1,8}}|#[xX][0-9a-fA-F]{{1,7}}|[A-Za-z][A-Za-z0-9]{{0,40}});?)"
    rf"|(?P<space>[{_SPACES}]+)|[^&{_SPACES}]+|&"
)
_XML_ENTITIES = frozenset(("&amp;", "&lt;", "&gt;", "&quot;", "&apos;"))


class Item(NamedTuple):
    """Something in a flow that is not text."""

    place: int  # in the text of the flow
    begin: int  # in the input
    end: int
    opening: int | None = None  # the number of the element that it opens
    closing: int | None = None  # … or closes
    is_half: bool = False  # whether it is an opening or a closing tag
    content: tuple[int, int, int] | None = None
    """Of an element whose text is not translated: where it ends in the flow, and its place in the input."""


class Edges(NamedTuple):
    """White space that stands among the tags of a segment, before and behind its text."""

    before: str
    after: str


class Flow:
    """Text with white space collapsed and entities resolved, and the tags in it."""

    def __init__(self, source: str, *, is_xml: bool, entities: bool, mark_lines: bool) -> None:
        self.source = source
        self.is_xml, self.entities, self.mark_lines = is_xml, entities, mark_lines
        self.parts: list[str] = []
        self.length = 0
        self.items: list[Item] = []
        self.has_lines = False  # whether line breaks are kept
        # Of each part: its place in the text, its place in the source, whether characters are the same there.
        self.texts: list[int] = []
        self.sources: list[tuple[int, int, bool]] = []

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.parts)

    def add_text(self, begin: int, end: int, keep_space: bool) -> None:
        """Add text of the source; ``keep_space`` as in ``<pre>``."""
        for chunk in _CHUNK.finditer(self.source, begin, end):
            raw = chunk[0]
            if chunk["entity"] and self.entities:
                self._add_entity(raw, *chunk.span(), keep_space)
            elif chunk["space"] and not keep_space:
                self._add_space(*chunk.span())
            else:
                self.has_lines |= keep_space and "\n" in raw
                self._add(raw, *chunk.span(), is_literal=True)

    def _add_entity(self, raw: str, begin: int, end: int, keep_space: bool) -> None:
        if self.is_xml and raw[1] != "#" and raw not in _XML_ENTITIES:
            self.items.append(Item(self.length, begin, end))  # declared in a DTD that nobody reads
            return
        resolved = unescape(raw)
        if resolved in _SPACES and not keep_space:
            self._add_space(begin, end)
        else:
            self._add(resolved, begin, end, is_literal=resolved == raw)

    def _add_space(self, begin: int, end: int) -> None:
        if self.length == 0 or self.parts[-1] != " ":
            self._add(" ", begin, end, is_literal=False)
        if self.mark_lines and "\n" in self.source[begin:end]:
            self.items.append(Item(self.length, begin, end))

    def _add(self, text: str, begin: int, end: int, is_literal: bool) -> None:
        if text:
            self.texts.append(self.length)
            self.sources.append((begin, end, is_literal))
            self.parts.append(text)
            self.length += len(text)

    def source_begin(self, place: int) -> int:
        """Return where a character of the text begins in the source."""
        part = bisect_right(self.texts, place) - 1
        begin, _, is_literal = self.sources[part]
        return begin + (place - self.texts[part] if is_literal else 0)

    def source_end(self, place: int) -> int:
        """Return where the character before a place ends in the source."""
        part = bisect_right(self.texts, place - 1) - 1
        begin, end, is_literal = self.sources[part]
        return begin + place - self.texts[part] if is_literal else end


class FlowSplitter:
    """Makes the sentences of a flow segments with the tags that belong to them."""

    def __init__(self, flow: Flow, sentences: list[Span]) -> None:
        self.flow, self.text = flow, flow.text
        self.sentences = sentences
        # Items between the sentences, those before the first one first, and those inside of each.
        self.gaps: list[list[Item]] = [[] for _ in range(len(sentences) + 1)]
        self.insides: list[list[Item]] = [[] for _ in sentences]
        self.opened: dict[int, int] = {}  # sentence that contains the tag which opens an element
        self.closed: dict[int, int] = {}
        number = 0
        for item in flow.items:
            while number < len(sentences) and sentences[number][1] <= item.place:
                number += 1
            if number < len(sentences) and item.place > sentences[number][0]:
                self.insides[number].append(item)
                if item.opening is not None:
                    self.opened[item.opening] = number
                if item.closing is not None:
                    self.closed[item.closing] = number
            else:
                self.gaps[number].append(item)

    def segment(self, number: int, places: list[Span]) -> tuple[Segment, Edges]:
        """Return a sentence as a segment; ``places`` in the text of the flow are protected."""
        begin, end = self.sentences[number]
        lead, trail = self._lead(number), self._trail(number)
        items = [*lead, *self.insides[number], *trail]
        segment = Segment(
            self.text[begin:end],
            lead[0].begin if lead else self.flow.source_begin(begin),
            # The last item may be an element whose text ends the sentence.
            max(self.flow.source_end(end), items[-1].end if items else 0),
            tuple(self._markers(items, begin, end)),
            tuple((low - begin, high - begin) for low, high in places),
            is_markup=self.flow.entities,
        )
        edges = Edges(
            self.text[lead[0].place : begin] if lead else "",
            self.text[end : trail[-1].place] if trail else "",
        )
        return segment, edges

    def _lead(self, number: int) -> list[Item]:
        """Return the items before a sentence from the first one that opens an element which ends inside."""
        gap = self.gaps[number]
        for index, item in enumerate(gap):
            ends_inside = item.opening is not None and self.closed.get(item.opening) == number
            if ends_inside or (item.content and item.place == self.sentences[number][0]):
                return gap[index:]
        return []

    def _trail(self, number: int) -> list[Item]:
        """Return the items behind a sentence up to the last that closes an element which begins inside."""
        gap = self.gaps[number + 1]
        for index in range(len(gap) - 1, -1, -1):
            closing = gap[index].closing
            if closing is not None and self.opened.get(closing) == number:
                return gap[: index + 1]
        return []

    def _markers(self, items: list[Item], begin: int, end: int) -> list[Marker]:
        both = {item.opening for item in items} & {item.closing for item in items}
        markers: list[Marker] = []
        stack = [-1]
        for item in items:
            place = min(max(item.place, begin), end) - begin
            if item.closing is not None and item.closing in both:
                opened = stack.pop()
                markers[opened] = replace(
                    markers[opened],
                    end=place,
                    closing=self._source[item.begin : item.end],
                    is_ordered=False,
                    space_after=self._is_space(item.end),
                )
                continue
            markers.append(self._marker(item, place, begin, stack[-1]))
            if item.opening is not None and item.opening in both:
                stack.append(len(markers) - 1)
        return markers

    def _marker(self, item: Item, place: int, begin: int, parent: int) -> Marker:
        raw = self._source[item.begin : item.end]
        if item.content:
            text_end, content_begin, content_end = item.content
            return Marker(
                place,
                text_end - begin,
                self._source[item.begin : content_begin],
                self._source[content_end : item.end],
                parent,
                self._source[content_begin:content_end],
                space_before=self._is_space(item.begin - 1),
                space_after=self._is_space(item.end),
            )
        is_spaced = not raw.isspace()
        return Marker(
            place,
            place,
            raw,
            parent=parent,
            is_ordered=item.is_half,
            space_before=is_spaced and self._is_space(item.begin - 1),
            space_after=is_spaced and not item.is_half and self._is_space(item.end),
        )

    @property
    def _source(self) -> str:
        return self.flow.source

    def _is_space(self, place: int) -> bool:
        return 0 <= place < len(self._source) and self._source[place] in _SPACES
