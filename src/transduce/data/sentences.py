"""Where the sentences of a text end, in many languages and scripts.

A mark such as "." ends a sentence unless what stands around it says otherwise: the next word is in lower
case, the word before is an abbreviation or an initial, the number before is an ordinal, a quotation goes on.
Each mark is judged by a bounded stretch of text on both sides, so that the time is linear in the length.
"""

import re

from transduce.data.abbreviations import SentenceRules, language_code, sentence_rules

_CLOSERS = "\"'”’»›)\\]}〉》」』】〕）］｝"
_WIDE = "。！？｡"  # end a sentence without a space after them
_OTHER = "؟۔।॥။។።፧։"  # full stops and question marks of scripts without case
_GREEK = ";\u037e"  # question marks of Greek
_SPACED = ".!?…‼⁇⁈⁉‽"
_MARK = re.compile(
    rf"(?P<marks>[{_SPACED}{_WIDE}{_OTHER}{_GREEK}]+)"
    # „ … .“ is German; after an ideographic full stop the same mark opens the next quotation.
    rf"(?P<closers>(?:(?<=[{_SPACED}])[“«‹]|[{_CLOSERS}]|[ \u00a0\u202f][»›](?![^\s.,;:!?…]))*)"
)
_SPACE = re.compile(r"\s*")
_OPENERS = re.compile(r"[\s\"'“”„‚‘’«»‹›(\[{¿¡\-–—―*_]{0,16}")
_WORD = re.compile(r"[^\s\"”»›,;:.!?…)\]}]{0,40}")
_NUMBER = re.compile(r"\d+(?:[.:/]\d+)*|[ivxlcdm]{2,}")
_OPENING_QUOTES = "「『（【〔《〈“‘("
_BEFORE_WORDS = "\"'“”„‚‘’«»‹›([{¿¡-–—"
_REACH = 40  # characters before a mark that are looked at
_MOST_DIGITS = 2  # of an ordinal number


def sentence_spans(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Return where each sentence begins and ends, without the white space around it.

    Line breaks count as any white space. ``language`` is a code such as ``de`` or ``pt-BR``.
    """
    rules = sentence_rules(language_code(language))
    is_cased = any(map(str.isupper, text))
    spans: list[tuple[int, int]] = []
    begin = _skip_space(text, 0)
    for mark in _MARK.finditer(text):
        end = mark.end()
        if end > begin and end < len(text) and _ends_sentence(text, begin, mark, rules, is_cased):
            spans.append((begin, end))
            begin = _skip_space(text, end)
    last = len(text.rstrip())
    if begin < last:
        spans.append((begin, last))
    return spans


def _ends_sentence(text: str, begin: int, mark: re.Match[str], rules: SentenceRules, is_cased: bool) -> bool:
    marks, end = mark["marks"], mark.end()
    following = text[end]
    if all(character in _GREEK for character in marks):
        return rules.code == "el" and following.isspace()
    if any(character in _WIDE for character in marks):
        # A quotation that is followed by its verb, as in 「…？」と言った, belongs to the sentence.
        return not mark["closers"] or following.isspace() or following in _OPENING_QUOTES
    if any(character in _OTHER for character in marks):
        return True
    if not following.isspace():
        # Latin marks between ideographs have no space after them.
        return marks[-1] in "!?" and _is_ideographic(following) and _is_ideographic(text[mark.start() - 1])
    return _ends_before(text, begin, mark, rules, is_cased)


def _ends_before(text: str, begin: int, mark: re.Match[str], rules: SentenceRules, is_cased: bool) -> bool:
    """Judge a mark with white space after it by the words on both sides."""
    opening = _OPENERS.match(text, mark.end())
    after = opening.end() if opening else mark.end()
    found = _WORD.match(text, after)
    following = found[0] if found else ""
    if is_cased and following[:1].islower() and not any(map(str.isupper, following[1:3])):
        return False
    if mark["marks"] != ".":
        return True
    return not _is_abbreviation(text, begin, mark, following, rules)


def _is_abbreviation(
    text: str, begin: int, mark: re.Match[str], following: str, rules: SentenceRules
) -> bool:
    """Tell whether the full stop belongs to the word before it and the sentence goes on."""
    stop = mark.start()
    words = text[max(begin, stop - _REACH) : stop].split()
    word = words[-1].lstrip(_BEFORE_WORDS) if words and not text[stop - 1].isspace() else ""
    before = words[-2] if len(words) > 1 else ""
    key = word.lower()
    if _NUMBER.fullmatch(key):
        is_first = begin + len(word) == stop
        return is_first or _is_ordinal(word, before, following, rules)
    if key in rules.titles or (key in rules.before_numbers and _is_number(following)):
        return True
    if len(word) == 1 and word.isalpha() and not _is_ideographic(word):
        # An initial, or a part of "z. B."; but "I" is a word of English, and "10 h" a unit.
        is_word = (word == "I" and rules.code == "en") or (word.islower() and before[-1:].isdigit())
        return not (is_word or _starts(following, rules))
    return (key in rules.abbreviations or _is_dotted(word)) and not _starts(following, rules)


def _is_ordinal(word: str, before: str, following: str, rules: SentenceRules) -> bool:
    if rules.code == "ko":  # 2020. 5. 3. 서울
        return following[:1].isdigit() or (before[-1:] == "." and before[:-1].isdigit())
    is_short = len(word) <= _MOST_DIGITS if word[0].isdigit() else word.isupper()  # Ludwig XIV.
    return rules.has_ordinals and is_short and not _starts(following, rules)


def _is_number(word: str) -> bool:
    return word[:1].isdigit() or bool(_NUMBER.fullmatch(word.lower()))


def _starts(word: str, rules: SentenceRules) -> bool:
    """Tell whether sentences often begin with a word."""
    key = word.lower().replace("’", "'")
    return key in rules.starters or key.partition("'")[0] + "'" in rules.starters


def _is_dotted(word: str) -> bool:
    """Tell whether a word is short parts with full stops between them: ``U.S``, ``p.m``, ``т.д``."""
    parts = word.split(".")
    return len(parts) > 1 and len(parts[-1]) <= 2 and all(len(part) <= 3 and part.isalpha() for part in parts)


def _is_ideographic(character: str) -> bool:
    return "\u3040" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def _skip_space(text: str, begin: int) -> int:
    match = _SPACE.match(text, begin)
    return match.end() if match else begin
