"""Where the markers of a segment stand in its translation.

Markers are a tree. From the root down, each marker gets a place inside its parent's: the target tokens that
are linked to the source that it encloses, or, without links, its share of the length. Places of siblings are
then moved apart, so that whatever the links are, every marker appears once and elements are properly nested.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from html import escape

from transduce.serving.segments import Link, Marker, Segment, TranslatedSegment

_FARTHEST = 30  # characters to the next boundary of a word
_WORK_PER_TOKEN = (
    64  # links looked at for each link and marker, which bounds the time of deeply nested markers
)
# Ideographs and scripts that write words without spaces between them.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

Place = tuple[int, int]


def render_segment(segment: Segment, translation: TranslatedSegment) -> str:
    """Return a translation with the markers of its segment."""
    if not segment.markers:
        return _escaped(segment, translation.text)
    placer = _Placer(segment, translation)
    return _assemble(segment, translation.text, placer.places(), placer.children)


class _Placer:
    """Places the markers of one segment in its translation."""

    def __init__(self, segment: Segment, translation: TranslatedSegment) -> None:
        self.markers = segment.markers
        self.source, self.target = segment.text, translation.text
        links = [link for link in translation.links if _is_valid(link, len(self.source), len(self.target))]
        # Twice the middle of the source token decides which side of a boundary it is on.
        self.links = sorted(links, key=lambda link: (link.source_begin + link.source_end, link.target_begin))
        self.middles = [link.source_begin + link.source_end for link in self.links]
        order = sorted(range(len(self.links)), key=lambda index: self.links[index].target_begin)
        self.rank = [0] * len(order)  # of each link among the target tokens
        for rank, index in enumerate(order):
            self.rank[index] = rank
        self.by_rank = [self.links[index] for index in order]
        self.budget = _WORK_PER_TOKEN * (len(self.links) + len(self.markers))
        self.children: dict[int, list[int]] = {}
        for index, marker in enumerate(self.markers):
            self.children.setdefault(marker.parent, []).append(index)

    def places(self) -> list[Place]:
        """Return the place of each marker in the translation."""
        pinned = self._pinned()
        places = [(0, len(self.target))] * len(self.markers)
        for parent in (-1, *range(len(self.markers))):
            children = self.children.get(parent)
            if not children:
                continue
            low, high = (0, len(self.target)) if parent < 0 else places[parent]
            latest = low
            for child in children:
                begin, end = self._edge(child, low, high) or self._wanted(
                    self.markers[child], pinned.get(child)
                )
                begin, end = (min(max(place, low), high) for place in (begin, end))
                if self.markers[child].is_ordered:
                    begin = latest = max(begin, latest)
                places[child] = (begin, max(begin, end))
            cursor = low
            # In the order of the translation; a stable sort keeps the order of the source among equals.
            children.sort(key=lambda child: places[child][0])
            for child in children:
                begin, end = (max(place, cursor) for place in places[child])
                places[child] = (begin, end)
                cursor = end
        return places

    def _edge(self, child: int, low: int, high: int) -> Place | None:
        """Return the place of what stands at the very beginning or end of the element around it."""
        marker = self.markers[child]
        if marker.parent < 0 or marker.begin != marker.end:
            return None
        parent = self.markers[marker.parent]
        if marker.begin == parent.end:
            return high, high
        return (low, low) if marker.begin == parent.begin else None

    def _pinned(self) -> dict[int, Place]:
        """Return where the translation has the contents that stay verbatim, and the hulls around them."""
        pinned: dict[int, Place] = {}
        found: dict[str, list[Place]] = {}
        for index, marker in enumerate(self.markers):
            if marker.content is not None and marker.begin < marker.end:
                text = self.source[marker.begin : marker.end]
                if text not in found:
                    found[text] = _occurrences(text, self.target)[::-1]
                if found[text]:
                    pinned[index] = found[text].pop()
        for index in range(len(self.markers) - 1, -1, -1):
            parent = self.markers[index].parent
            if index in pinned and parent >= 0:
                begin, end = pinned.get(parent, pinned[index])
                pinned[parent] = (min(begin, pinned[index][0]), max(end, pinned[index][1]))
        return pinned

    def _wanted(self, marker: Marker, pinned: Place | None) -> Place:
        if marker.begin == marker.end or (marker.content is not None and pinned):
            return pinned or (self._point(marker.begin),) * 2
        if marker.begin == 0 and marker.end == len(self.source) and marker.content is None:
            return 0, len(self.target)
        linked = self._linked(marker)
        if marker.content is not None and linked is None:
            return (self._point(marker.begin),) * 2
        begin, end = linked or (self._begin(marker.begin), self._end(marker.end))
        begin, end = self._trimmed(begin, max(begin, end), marker)
        return (min(begin, pinned[0]), max(end, pinned[1])) if pinned else (begin, end)

    def _linked(self, marker: Marker) -> Place | None:
        """Return the run of target tokens that agrees best with the source that a marker encloses."""
        first = bisect_left(self.middles, 2 * marker.begin)
        last = bisect_left(self.middles, 2 * marker.end)
        self.budget -= last - first
        if first == last or self.budget < 0:
            return None
        ranks = sorted(self.rank[first:last])
        best, best_begin, best_end = 0, ranks[0], ranks[0]
        score, begin = 0, ranks[0]
        for previous, rank in zip((ranks[0] - 1, *ranks), ranks, strict=False):
            score -= rank - previous - 1  # tokens in between that belong elsewhere
            if score <= 0:
                score, begin = 0, rank
            score += 1
            if score > best:
                best, best_begin, best_end = score, begin, rank
        tokens = self.by_rank[best_begin : best_end + 1]
        return tokens[0].target_begin, max(token.target_end for token in (tokens[0], tokens[-1]))

    def _trimmed(self, begin: int, end: int, marker: Marker) -> Place:
        """Leave out white space at both ends; take in whole words if the source has whole words."""
        text = self.target
        while begin < end and text[begin].isspace():
            begin += 1
        while begin < end and text[end - 1].isspace():
            end -= 1
        if begin < end and not _is_inside_word(self.source, marker.begin):
            begin = _word_begin(text, begin)
        if begin < end and not _is_inside_word(self.source, marker.end):
            end = _word_end(text, end)
        return begin, end

    def _begin(self, place: int) -> int:
        """Return where the first source token behind a place went."""
        index = bisect_left(self.middles, 2 * place)
        return self.links[index].target_begin if index < len(self.links) else self._share(place)

    def _end(self, place: int) -> int:
        """Return where the last source token before a place went."""
        index = bisect_left(self.middles, 2 * place) - 1
        return self.links[index].target_end if index >= 0 else self._share(place)

    def _point(self, place: int) -> int:
        if place in (0, len(self.source)):
            return 0 if place == 0 else len(self.target)
        follows_word = not self.source[place - 1].isspace()
        point = self._end(place) if follows_word else self._begin(place)
        if _is_inside_word(self.source, place):
            return point
        return _word_end(self.target, point) if follows_word else _word_begin(self.target, point)

    def _share(self, place: int) -> int:
        """Return the place in proportion to the lengths, at the end of a word if it is that in the source."""
        share = round(place * len(self.target) / max(len(self.source), 1))
        if _is_inside_word(self.source, place):
            return share
        begin, end = _word_begin(self.target, share), _word_end(self.target, share)
        return begin if share - begin <= end - share else end


def _is_valid(link: Link, source: int, target: int) -> bool:
    return (
        0 <= link.source_begin < link.source_end <= source
        and 0 <= link.target_begin < link.target_end <= target
    )


def _occurrences(text: str, target: str) -> list[Place]:
    whole = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", target)]
    return whole or [match.span() for match in re.finditer(re.escape(text), target)]


def _is_letter(character: str) -> bool:
    """Tell whether a character is part of a word that has spaces around it, or a mark on another one."""
    if character in "\u200c\u200d" or unicodedata.category(character)[0] == "M":
        return True
    return character.isalnum() and not _UNSPACED.match(character)


def _is_inside_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and _is_letter(text[place - 1]) and _is_letter(text[place])


def _word_begin(text: str, place: int) -> int:
    begin = place
    while place - begin < _FARTHEST and _is_inside_word(text, begin):
        begin -= 1
    return begin


def _word_end(text: str, place: int) -> int:
    end = place
    while end - place < _FARTHEST and _is_inside_word(text, end):
        end += 1
    return end


def _escaped(segment: Segment, text: str) -> str:
    return escape(text, quote=False) if segment.is_markup else text


def _assemble(segment: Segment, text: str, places: Sequence[Place], children: dict[int, list[int]]) -> str:
    """Write the text with the markers; ``children`` are in the order of the translation."""
    parts: list[str] = []
    written, is_spaced = 0, True
    stack = [(child, False) for child in reversed(children.get(-1, []))]
    while stack:
        index, is_open = stack.pop()
        marker, (begin, end) = segment.markers[index], places[index]
        place = end if is_open else begin
        if place > written:
            parts.append(_escaped(segment, text[written:place]))
            written, is_spaced = place, text[place - 1].isspace()
        if is_open:
            parts.append(marker.closing)
            if begin == end and marker.space_after and place < len(text) and not text[place].isspace():
                parts.append(" ")
                is_spaced = True
            continue
        if begin == end and marker.space_before and not is_spaced:
            parts.append(" ")
        is_spaced = is_spaced and begin < end
        parts.append(marker.opening)
        if marker.content is not None:
            parts.append(marker.content)
            written = max(written, end)
        stack.append((index, True))
        stack += [(child, False) for child in reversed(children.get(index, []))]
    return "".join((*parts, _escaped(segment, text[written:])))
