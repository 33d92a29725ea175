"""Sentences of a text, what in them is not translated, and the text around them."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate
from typing import NamedTuple

_AFTER_WORDS = frozenset((",", ".", ";", ":", "!", "?", "…", ")", "]", "}", "。", "，"))


class Link(NamedTuple):
    """A token of a translation and the source token that it attends to most; both count code points."""

    source_begin: int
    source_end: int
    target_begin: int
    target_end: int


@dataclass(frozen=True)
class Marker:
    """Something that is not translated and has a place in the text: a tag, an element, a placeholder."""

    begin: int  # characters of `Segment.text` that it encloses
    end: int  # equal to ``begin`` for what stands between two characters
    opening: str  # verbatim: ``<b class=x>``
    closing: str = ""
    parent: int = -1  # the marker that encloses it, an earlier one of `Segment.markers`; -1 if none does
    content: str | None = None  # verbatim, instead of the translation of what it encloses
    is_ordered: bool = False  # stays behind the ordered markers before it, as half an element must
    space_before: bool = (
        False  # whether the source has white space before it; if it stands between characters
    )
    space_after: bool = False


@dataclass(frozen=True)
class Segment:
    """One sentence to translate."""

    text: str  # what the model reads: no tags, entities resolved, no outer white space
    begin: int  # its place in the whole input, with the tags that belong to it
    end: int
    markers: tuple[Marker, ...] = ()
    places: tuple[tuple[int, int], ...] = ()  # of `protected` in the text, in order
    is_markup: bool = False  # whether ``<``, ``>`` and ``&`` are escaped when it is rendered

    @property
    def protected(self) -> tuple[str, ...]:
        """The parts of the text that must be in the translation verbatim, such as ``{name}`` and URLs."""
        return tuple(self.text[begin:end] for begin, end in self.places)

    def missing_protected(self, translation: str) -> list[str]:
        """Return the protected parts that a translation has too few times."""
        needed = Counter(self.protected)
        return [part for part, count in needed.items() if translation.count(part) < count]

    def without_protected(self) -> "Segment":
        """Return the segment with its protected parts removed from the text and turned into markers.

        It is for models that do not copy them: `Layout.render` puts a marker into every translation. Pass it
        as `TranslatedSegment.segment`.
        """
        removed = _with_spaces(self.text, self.places)
        kept = _without(self.text, removed).rstrip()
        begins = [begin for begin, _ in removed]
        before = [0, *accumulate(end - begin for begin, end in removed)]

        def moved(place: int) -> int:
            index = bisect_right(begins, place) - 1
            if index < 0:
                return place
            begin, end = removed[index]
            return min(place - before[index] - (min(place, end) - begin), len(kept))

        markers = [
            replace(marker, begin=moved(marker.begin), end=moved(marker.end)) for marker in self.markers
        ]
        elements = {(marker.begin, marker.end) for marker in self.markers if marker.content is not None}
        markers += [
            self._placeholder(begin, end, moved(begin), parent)
            for (begin, end), parent in zip(self.places, self._parents(), strict=True)
            if (begin, end) not in elements
        ]
        return replace(self, text=kept, markers=tuple(markers), places=())

    def _placeholder(self, begin: int, end: int, place: int, parent: int) -> Marker:
        verbatim = self.text[begin:end]
        return Marker(
            place,
            place,
            escape(verbatim, quote=False) if self.is_markup else verbatim,
            parent=parent,
            space_before=self.text[begin - 1 : begin].isspace(),
            space_after=self.text[end : end + 1].isspace(),
        )

    def _parents(self) -> list[int]:
        """Return for each protected place the innermost marker around it."""
        parents, open_markers, index = [], [-1], 0
        for begin, end in self.places:
            while index < len(self.markers) and self.markers[index].begin <= begin:
                if self.markers[index].content is None and self.markers[index].end >= end:
                    open_markers.append(index)
                index += 1
            while open_markers[-1] >= 0 and self.markers[open_markers[-1]].end < end:
                open_markers.pop()
            parents.append(open_markers[-1])
        return parents


@dataclass(frozen=True)
class TranslatedSegment:
    """The translation of a segment."""

    text: str
    links: Sequence[Link] = ()  # empty if no alignment is known
    segment: Segment | None = None  # what was translated, if it is not the segment itself but made from it


def _with_spaces(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places with the white space that their removal would leave twice, or before a comma."""
    removed: list[tuple[int, int]] = []
    for begin, end in places:
        last = removed[-1][1] if removed else 0
        starts = begin == last or text[begin - 1].isspace()
        if starts and text[end : end + 1].isspace():
            removed.append((begin, end + 1))
        elif begin > last and starts and text[end : end + 1] in _AFTER_WORDS:
            removed.append((begin - 1, end))
        else:
            removed.append((begin, end))
    return removed


def _without(text: str, removed: Sequence[tuple[int, int]]) -> str:
    ends = [0, *(end for _, end in removed)]
    begins = [*(begin for begin, _ in removed), len(text)]
    return "".join(text[end:begin] for end, begin in zip(ends, begins, strict=True))
