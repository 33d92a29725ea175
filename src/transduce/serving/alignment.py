"""Alignments between the characters of a sentence and those of its translation."""

from transduce.data.tokenizer import SideTokenizer
from transduce.decoding.translation import Candidate, Translation
from transduce.decoding.translator import Translator
from transduce.serving.segments import Link


def links_of(translator: Translator, translation: Translation, candidate: Candidate) -> list[Link]:
    """Return for each target token its characters, and those of the source token it attends to most.

    Tokens without characters, such as ``eos``, are left out. Lines that were split have no links.
    """
    if candidate.alignment is None or translation.pieces > 1 or translation.truncated_source is not None:
        return []
    source = source_offsets(translator.tokenizer.source, translation.source)
    before = translator.tokenizer.source_frame[0]
    targets = target_offsets(translator.tokenizer.target, candidate.ids)
    links = []
    for place, (begin, end) in zip(candidate.alignment, targets, strict=True):
        if begin < end and 0 <= place - before < len(source):
            links.append(Link(*source[place - before], begin, end))
    return links


def source_offsets(side: SideTokenizer, text: str) -> list[tuple[int, int]]:
    """Return the characters of each token of a text, without the white space around them."""
    offsets = side.backend.encode(text, add_special_tokens=False).offsets
    return [_stripped(text, begin, end) for begin, end in offsets]


def target_offsets(side: SideTokenizer, ids: list[int]) -> list[tuple[int, int]]:
    """Return the characters that each token adds to the text, without the white space around them.

    The bytes of one character may be several tokens; the last of them adds it.
    """
    text, offsets, begin = side.decode(ids), list[tuple[int, int]](), 0
    for count in range(1, len(ids) + 1):
        prefix = side.decode(ids[:count])
        # An incomplete character is decoded as a replacement character until its last byte is there.
        end = _common(prefix, text)
        offsets.append(_stripped(text, begin, max(begin, end)))
        begin = max(begin, end)
    return offsets


def _common(first: str, second: str) -> int:
    """Return the length of the common beginning of two texts."""
    if second.startswith(first):
        return len(first)
    return next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end
