"""The text around the segments, and the whole text with translated segments."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transduce.serving.placement import render_segment
from transduce.serving.segments import Segment, TranslatedSegment


class Rendered(NamedTuple):
    """A translated text and the place of each segment in it."""

    text: str
    spans: list[tuple[int, int]]


@dataclass(frozen=True)
class Layout:
    """A text and its segments; what is between them is kept verbatim."""

    text: str
    segments: list[Segment]
    edges: dict[int, tuple[str, str]] = field(default_factory=dict)
    """White space before and after a segment, by its index, that stands among the tags that belong to it."""

    def render(self, translated: Sequence[TranslatedSegment]) -> Rendered:
        """Return the text with its segments translated.

        A segment whose translation is its own text comes back exactly as it was, with tags and entities.
        """
        parts: list[str] = []
        spans: list[tuple[int, int]] = []
        length, place = 0, 0
        for index, (segment, translation) in enumerate(zip(self.segments, translated, strict=True)):
            between = self.text[place : segment.begin]
            body = self._body(index, segment, translation)
            if index and not between and place == segment.begin and _need_space(parts[-1], body):
                between = " "
            begin = length + len(between)
            length = begin + len(body)
            parts += [between, body]
            spans.append((begin, length))
            place = segment.end
        return Rendered("".join((*parts, self.text[place:])), spans)

    def _body(self, index: int, segment: Segment, translation: TranslatedSegment) -> str:
        if translation.text == (translation.segment or segment).text:
            return self.text[segment.begin : segment.end]
        before, after = self.edges.get(index, ("", ""))
        return before + render_segment(translation.segment or segment, translation) + after


def _need_space(before: str, after: str) -> bool:
    """Tell whether two sentences that had no space between them, as in Chinese, need one now."""
    return (
        before[-1:] in {".", "!", "?", "…", '"', "”", ")"} and after[:1].isascii() and not after[:1].isspace()
    )
