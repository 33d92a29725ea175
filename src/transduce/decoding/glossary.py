"""Glossaries: terms that have a fixed translation, and words that every translation must contain."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from transduce.data.text_files import decode_lines, raw_lines, require_utf8
from transduce.errors import ConfigError, DataError
from transduce.files import user_path

# Scripts that are written without spaces between words, as ranges of a character class: Thai and Lao,
# Burmese, Khmer, Japanese, Chinese
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff"
    r"\u31f0-\u31ff\uff66-\uff9f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
)
_HANGUL = r"\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # particles follow without a space
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


@dataclass(frozen=True)
class Glossary:
    """Pairs of a source term and its translation, and words that every translation must contain."""

    terms: tuple[tuple[str, str], ...] = ()
    always: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for words in self.always:
            require_utf8(words, "a constraint (--constraint)")
            if not words.strip():
                raise ConfigError("a constraint (--constraint) is blank", "give words that must appear")

    @classmethod
    def load(
        cls, terms: Mapping[str, str] | str | Path | None, constraints: Sequence[str] = ()
    ) -> "Glossary | None":
        """Return a glossary of these terms, from a mapping or a file; ``None`` if there is nothing in it."""
        if isinstance(terms, str | Path):
            pairs = _read_terms(user_path(terms))
        else:
            pairs = tuple((terms or {}).items())
        return cls(pairs, tuple(constraints)) if pairs or constraints else None

    def terms_in(self, source: str) -> list[tuple[str, str]]:
        """Return the terms that a source contains as whole words, in any case, and their translations."""
        folded = _folded(source)
        likely = zip(self.terms, self._folded_terms, strict=True)  # thousands of patterns would take long
        return [pair for pair, term in likely if term in folded and is_term_in(pair[0], source)]

    @cached_property
    def _folded_terms(self) -> list[str]:
        return [_folded(term) for term, _ in self.terms]

    def required_words(self, source: str, *, is_first: bool = True) -> list[str]:
        """Return what the translation of a source must contain, without repetitions.

        Terms match as `is_term_in` says. The words that every translation must contain count for the first
        piece of a line.
        """
        translations = [target for _, target in self.terms_in(source)]
        return list(dict.fromkeys([*(self.always if is_first else ()), *translations]))


def is_term_in(term: str, source: str) -> bool:
    """Return whether a source contains a term as whole words, in any case.

    In scripts that are written without spaces, such as Chinese, a term is found inside a run of letters, too;
    in Korean, particles may follow it.
    """
    if not term:
        return False
    pattern, start = _pattern(term), 0
    while match := pattern.search(source, start):
        if not _is_mark(source[match.end() : match.end() + 1]):
            return True
        start = match.start() + 1
    return False


@lru_cache(maxsize=4096)
def _pattern(term: str) -> re.Pattern[str]:
    """Return a pattern that finds a term where words can begin and end.

    Between a script with spaces and one without, there is such a place.
    """
    free = _UNSPACED if re.match(f"[{_HANGUL}]", term) else _UNSPACED + _HANGUL
    before = "" if re.match(f"[{_UNSPACED}]", term) else rf"(?<![^\W{free}])"
    after = "" if re.match(f"[{_UNSPACED}{_HANGUL}]", term[-1]) else rf"(?![^\W{_UNSPACED}{_HANGUL}])"
    return re.compile(before + re.escape(term) + after, re.IGNORECASE)


def _is_mark(character: str) -> bool:
    """Return whether a character belongs to the letter before it: an accent, a vowel sign, a tone mark."""
    if not character or ord(character) in _VARIATION_SELECTORS:
        return False
    return unicodedata.category(character).startswith("M")


def _folded(text: str) -> str:
    """Return a text in which letters are equal if patterns that ignore case take them to be equal."""
    return text.upper().casefold().replace("\u0307", "")  # of a capital I with a dot


def _read_terms(path: Path) -> tuple[tuple[str, str], ...]:
    """Read a file with a source term, a tab and its translation on each line."""
    terms: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(decode_lines(raw_lines(path), str(path)), start=1):
        columns = [column.strip() for column in line.split("\t")]
        if not any(columns):
            continue
        if len(columns) != 2 or not all(columns):
            raise DataError(
                f"{path}, line {number}: expected a source term, a tab and its translation",
                "rewrite the line",
            )
        source, target = columns
        if terms.setdefault(source.lower(), (source, target))[1] != target:
            raise DataError(
                f"{path}, line {number}: {source!r} has a different translation on an earlier line",
                "remove one of the two lines",
            )
    return tuple(terms.values())
