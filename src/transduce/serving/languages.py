"""Names of languages, and the language of a text."""

import re
from collections.abc import Sequence
from functools import cache
from html import unescape
from typing import NamedTuple

from transduce.errors import DependencyError

_TAG = re.compile(r"<[^<>]*>")  # names of tags and attributes are English in every language
_LONGEST_PAGE, _LONGEST_SAMPLE = 50_000, 10_000  # characters that are read, with and without tags


class Detected(NamedTuple):
    """A language that a text may be in."""

    code: str
    confidence: float  # from 0 to 1


@cache
def language_name(code: str) -> str:
    """Return the English name of a language, or the code itself if it is not known."""
    from babel import Locale, UnknownLocaleError

    try:
        locale = Locale.parse(code.replace("-", "_"), resolve_likely_subtags=False)
    except (UnknownLocaleError, ValueError, TypeError):
        return code
    return locale.get_display_name("en") or code


@cache
def is_right_to_left(code: str) -> bool:
    """Return whether a language is written from right to left."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code.replace("-", "_")).text_direction == "rtl"
    except (UnknownLocaleError, ValueError, TypeError):
        return False


class Detector:
    """Tells which of the served languages a text is in. Needs the extra ``detect``."""

    def __init__(self, codes: Sequence[str]) -> None:
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise DependencyError(
                "detecting languages needs py3langid, which is not installed",
                "run: pip install 'transduce[detect]'",
            ) from None
        self._codes = {code.lower().replace("_", "-").split("-")[0]: code for code in codes}
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = sorted(self._codes.keys() & set(self._identifier.labels))
        if known:
            self._identifier.set_languages(known)
        self._is_useful = bool(known)

    def detect(self, text: str, among: Sequence[str] | None = None) -> list[Detected]:
        """Return the languages that a text may be in, most likely first: one of ``among``, or any."""
        codes = list(self._codes.values()) if among is None else list(among)
        words = unescape(_TAG.sub(" ", text[:_LONGEST_PAGE]))[:_LONGEST_SAMPLE]
        ranked = self._identifier.rank(words) if self._is_useful else []
        shares = [(self._codes[code], float(share)) for code, share in ranked if self._codes[code] in codes]
        total = sum(share for _, share in shares)
        if not total:  # the library knows none of them
            return [Detected(code, 0.0) for code in codes]
        return [Detected(code, round(share / total, 4)) for code, share in shares]
