"""Parts of a text that its translation must contain: placeholders, tags, URLs, e-mail addresses, words.

Every repetition in these patterns is bounded or begins where nothing else can, so that the time is linear.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from transduce.serving.sentences import Span

_URL_CHARACTER = r"[^\s<>\"`{}|\\^\u3000-\u9fff\uac00-\ud7af\uff00-\uffef“”«»„]"
_PATTERN = re.compile(
    "|".join(
        (
            rf"(?P<url>(?<![a-zA-Z0-9])(?:(?:https?|ftp|file)://|www\.){_URL_CHARACTER}+)",
            r"(?P<address>(?<![a-zA-Z0-9._+-])[a-zA-Z0-9._+-]{1,64}@[a-zA-Z0-9-]{1,63}(?:\.[a-zA-Z0-9-]{1,63}){1,8})",
            r"\{\{[^{}\n]{1,100}\}\}",  # {{ name }}
            r"[$#%]?\{[^{}\s]{0,60}\}",  # {name}, {0:.2f}, ${name}, #{name}, %{name}
            r"%\([\w.]{1,60}\)[#0\-+]?\d{0,3}(?:\.\d{1,3})?[a-zA-Z]",  # %(name)s
            # %s, %1$s, %5.2f, %ld, %@; not "100%d'accord"
            r"(?<![\w%])%(?:\d{1,3}\$)?[#0\-+]?\d{0,3}(?:\.\d{1,3})?(?:hh|h|ll|l|z)?(?:[sdiufgxXc](?!\w)|@)",
            r"</?[A-Za-z][\w:.-]{0,40}(?:\s[^<>\n]{0,200})?/?>",  # <x id=1/>
        )
    )
)
_TRAILING = ".,;:!?…'’*_-"
_CLOSING = {")": "(", "]": "["}


def find_protected(text: str, words: Iterable[str] = ()) -> list[Span]:
    """Return the parts of a plain text that a translation must contain verbatim, in order.

    ``words`` are protected too wherever they stand as whole words.
    """
    found = [(match.start(), _end(text, match)) for match in _PATTERN.finditer(text)]
    return _merged([*found, *find_words(text, words)])


def find_words(text: str, words: Iterable[str]) -> list[Span]:
    """Return where words that are not to be translated stand; upper and lower case differ."""
    chosen = tuple(sorted({word.strip() for word in words} - {""}, key=lambda word: (-len(word), word)))
    return [match.span() for match in _word_pattern(chosen).finditer(text)] if chosen else []


@lru_cache(maxsize=16)
def _word_pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(_bounded(word) for word in words))


def _bounded(word: str) -> str:
    """Return a pattern for a word that is not a part of a longer one; ideographs have no boundaries."""
    before, after = (r"(?<!\w)", r"(?!\w)")
    return (
        (before if _has_boundary(word[0]) else "")
        + re.escape(word)
        + (after if _has_boundary(word[-1]) else "")
    )


def _has_boundary(character: str) -> bool:
    return (
        character.isalnum()
        and not "\u0e00" <= character <= "\u0eff"
        and not "\u3040" <= character <= "\ud7af"
    )


def _end(text: str, match: re.Match[str]) -> int:
    """Return where a match ends; punctuation behind a URL belongs to the sentence."""
    begin, end = match.span()
    if match["url"] is None and match["address"] is None:
        return end
    unmatched = {
        closing: text.count(closing, begin, end) - text.count(opening, begin, end)
        for closing, opening in _CLOSING.items()
    }
    while end > begin + 1:
        last = text[end - 1]
        if unmatched.get(last, 0) > 0:
            unmatched[last] -= 1
        elif last not in _TRAILING:
            return end
        end -= 1
    return end


def _merged(spans: list[Span]) -> list[Span]:
    """Return spans in order; those that overlap become one."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
