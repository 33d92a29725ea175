"""HTML and XML: the sentences of their texts, with tags that come back where the words they enclose went.

Tags and attributes come back verbatim. So does everything of a sentence that the translation does not change;
in one that it changes, entities come back as characters (``é`` for ``&eacute;``), but for ``&amp;``, ``&lt;``
and ``&gt;``, and a stray ``<`` comes back as ``&lt;``. Elements with ``translate="no"`` or the class
``notranslate``, scripts, code, comments and CDATA are not translated.
"""

from collections.abc import Callable, Collection, Sequence

from transduce.serving.html_flow import Edges, Flow, FlowSplitter, Item
from transduce.serving.layout import Layout
from transduce.serving.markup import Element, Kind, Token, attributes, match_elements, tokenize
from transduce.serving.placeholders import find_protected
from transduce.serving.plain_layout import has_words
from transduce.serving.segments import Segment
from transduce.serving.sentences import Span, Splitting, split_sentences


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


_BLOCKS = _names(
    "address article aside blockquote body br button caption center col colgroup dd details dialog dir div dl"
    " dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html"
    " label legend li link main menu meta nav noscript ol optgroup option p pre script search section select"
    " style summary table tbody td template tfoot th thead title tr ul"
)
_UNTRANSLATED = _names(
    "script style code kbd samp var svg math textarea object iframe noembed noframes xmp template"
)
_LONGEST_CONTENT = 80  # characters of an untranslated element that the model reads, and copies
_MOST_CONTENTS = 50  # such elements in a flow


def html_layout(
    text: str,
    language: str | None = None,
    *,
    do_not_translate: Sequence[str] = (),
    ignore_tags: Collection[str] = (),
    splitting_tags: Collection[str] = (),
    non_splitting_tags: Collection[str] = (),
    outline_detection: bool = True,
    is_xml: bool = False,
    splitting: Splitting = "sentences",
    protect: bool = True,
    entities: bool = True,
    mark_lines: bool = False,
) -> Layout:
    """Return the sentences of an HTML or XML text.

    ``ignore_tags`` are elements that are not translated; ``splitting_tags`` always and ``non_splitting_tags``
    never end a sentence. In XML, ``outline_detection`` finds the elements that do: those that never have
    text beside them. Without ``entities``, ``&`` and ``<`` are plain characters besides the tags; with
    ``mark_lines`` line breaks inside sentences come back like tags.
    """
    tokens = tokenize(text, is_xml)
    elements, openings = match_elements(tokens)
    blocks = _outline(text, tokens, openings) if is_xml else _BLOCKS
    if is_xml and not outline_detection:
        blocks = frozenset()
    walker = _Walker(
        text,
        tokens,
        elements,
        openings,
        blocks=(blocks | frozenset(splitting_tags)) - frozenset(non_splitting_tags),
        untranslated=frozenset(ignore_tags) | (frozenset() if is_xml else _UNTRANSLATED),
        new_flow=lambda: Flow(text, is_xml=is_xml, entities=entities, mark_lines=mark_lines),
    )
    segments: list[Segment] = []
    edges: dict[int, tuple[str, str]] = {}
    for flow in walker.flows():
        for segment, edge in flow_segments(flow, language, do_not_translate, splitting, protect):
            if any(edge):
                edges[len(segments)] = edge
            segments.append(segment)
    return Layout(text, segments, edges)


def _outline(text: str, tokens: list[Token], openings: dict[int, int]) -> frozenset[str]:
    """Return the names of elements that never have text beside them in the element around them."""
    names: set[str] = set()
    inline: set[str] = set()
    parents: list[tuple[bool, set[str]]] = [(False, set())]  # whether each has text, and its children
    closing = set(openings)
    opened = set(openings.values())
    for index, token in enumerate(tokens):
        has_text, children = parents[-1]
        if token.kind is Kind.TEXT:
            parents[-1] = (has_text or bool(text[token.begin : token.end].strip()), children)
        elif token.kind in {Kind.OPEN, Kind.EMPTY}:
            names.add(token.name)
            children.add(token.name)
            if index in opened:
                parents.append((False, set()))
        elif index in closing:
            parents.pop()
            inline |= children if has_text else set()
    for has_text, children in parents:
        inline |= children if has_text else set()
    return frozenset(names - inline)


class _Walker:
    """Walks through the tokens and gathers flows between the tags of blocks."""

    def __init__(
        self,
        text: str,
        tokens: list[Token],
        elements: dict[int, Element],
        openings: dict[int, int],
        *,
        blocks: frozenset[str],
        untranslated: frozenset[str],
        new_flow: Callable[[], Flow],
    ) -> None:
        self.text, self.tokens = text, tokens
        self.elements, self.openings = elements, openings
        self.blocks, self.untranslated = blocks, untranslated
        self.new_flow = new_flow

    def flows(self) -> list[Flow]:
        """Return the flows that have text."""
        flows = [self.new_flow()]
        preformatted = contents = 0
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            if token.name == "pre":
                preformatted = max(preformatted + (1 if token.kind is Kind.OPEN else -1), 0)
            if token.name in self.blocks and flows[-1].length + len(flows[-1].items):
                flows.append(self.new_flow())
                contents = 0
            flow = flows[-1]
            last = self._untranslated_until(index)
            if last is not None:
                if token.name not in self.blocks:
                    is_short = contents < _MOST_CONTENTS and self._is_short(index, last)
                    contents += is_short
                    flow.items.append(self._element(flow, index, last, is_short))
                index = last + 1
                continue
            if token.kind is Kind.TEXT:
                flow.add_text(token.begin, token.end, preformatted > 0)
            elif token.name not in self.blocks:
                flow.items.append(self._item(flow, index))
            index += 1
        return [flow for flow in flows if flow.length]

    def _untranslated_until(self, index: int) -> int | None:
        """Return the last token of an element that is not to be translated, if such a one begins here."""
        token = self.tokens[index]
        if token.kind is not Kind.OPEN:
            return None
        if token.name not in self.untranslated:
            tag = self.text[token.begin : token.end]
            if "translate" not in tag.lower():
                return None
            found = attributes(tag)
            if (
                found.get("translate", "").lower() != "no"
                and "notranslate" not in found.get("class", "").split()
            ):
                return None
        return self.elements[index].last

    def _is_short(self, index: int, last: int) -> bool:
        """Tell whether an element is a few words without tags, which the model can read and copy."""
        if (
            last != index + 2
            or self.tokens[index + 1].kind is not Kind.TEXT
            or not self.elements[index].is_closed
        ):
            return False
        _, begin, end, _ = self.tokens[index + 1]
        content = self.text[begin:end]
        return len(content) <= _LONGEST_CONTENT and content == content.strip() and "&" not in content

    def _element(self, flow: Flow, index: int, last: int, is_short: bool) -> Item:
        place, begin, end = flow.length, self.tokens[index].begin, self.tokens[last].end
        if not is_short:
            return Item(place, begin, end)
        content = self.tokens[index + 1]
        flow.add_text(content.begin, content.end, keep_space=False)
        return Item(place, begin, end, content=(flow.length, content.begin, content.end))

    def _item(self, flow: Flow, index: int) -> Item:
        token = self.tokens[index]
        is_closed = index in self.elements and self.elements[index].is_closed
        return Item(
            flow.length,
            token.begin,
            token.end,
            opening=index if is_closed else None,
            closing=self.openings.get(index),
            is_half=token.kind in {Kind.OPEN, Kind.CLOSE},
        )


def flow_segments(
    flow: Flow, language: str | None, do_not_translate: Sequence[str], splitting: Splitting, protect: bool
) -> list[tuple[Segment, Edges]]:
    """Return the sentences of a flow that have something to translate."""
    text = flow.text
    contents = [(item.place, item.content[0]) for item in flow.items if item.content]
    found = find_protected(text, do_not_translate) if protect else []
    protected = _with_contents(found, contents)
    if flow.has_lines and splitting == "sentences":
        splitting = "all"
    sentences = split_sentences(text, language, splitting, protected)
    splitter = FlowSplitter(flow, sentences)
    segments = []
    first = 0
    for number, (begin, end) in enumerate(sentences):
        while first < len(protected) and protected[first][1] <= begin:
            first += 1
        last = first
        while last < len(protected) and protected[last][0] < end:
            last += 1
        places = [(max(low, begin), min(high, end)) for low, high in protected[first:last]]
        if has_words(text[begin:end], [(low - begin, high - begin) for low, high in places]):
            segments.append(splitter.segment(number, places))
    return segments


def _with_contents(found: list[Span], contents: list[Span]) -> list[Span]:
    """Return protected places with those of untranslated elements, which take precedence."""
    kept = list(contents)
    position = 0
    for begin, end in found:
        while position < len(contents) and contents[position][1] <= begin:
            position += 1
        if position == len(contents) or contents[position][0] >= end:
            kept.append((begin, end))
    return sorted(kept)
