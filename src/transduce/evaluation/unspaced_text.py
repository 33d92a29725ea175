"""Text in scripts that put no spaces between words, for which BLEU needs a tokenization of its own."""

from collections.abc import Iterable
from itertools import islice

_LINES = 1000  # lines that are examined
_LETTERS_PER_WORD = 6  # more than that on average: spaces do not separate words
_SPACED = ("13a", "intl", "none")  # tokenizations that rely on spaces
_KANA = ((0x3040, 0x30FF), (0x31F0, 0x31FF))
_HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
# Thai, Lao, Tibetan, Burmese and Khmer
_SOUTH_EAST_ASIAN = ((0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF))


def tokenization_warning(texts: Iterable[str], tokenize: str) -> str | None:
    """Return a warning if BLEU would take whole lines of these texts for single words."""
    suggestion = suggested_tokenization(texts) if tokenize in _SPACED else None
    if suggestion is None:
        return None
    others = "" if suggestion == "char" else " or --tokenize char"
    return (
        f"the references have no spaces between words, so BLEU with the tokenization {tokenize} compares "
        f"whole phrases and is close to 0; use --tokenize {suggestion}{others}"
    )


def suggested_tokenization(texts: Iterable[str]) -> str | None:
    """Return ``ja-mecab``, ``zh`` or ``char`` for text without spaces between words, else ``None``."""
    sample = list(islice(texts, _LINES))
    characters = [ord(character) for text in sample for character in text if character.isalpha()]
    kana, han, others = (_count(characters, ranges) for ranges in (_KANA, _HAN, _SOUTH_EAST_ASIAN))
    words = sum(len(text.split()) for text in sample)
    if 2 * (kana + han + others) <= len(characters) or len(characters) <= _LETTERS_PER_WORD * words:
        return None
    if others > kana + han:
        return "char"
    return "ja-mecab" if 10 * kana > han else "zh"


def _count(characters: list[int], ranges: tuple[tuple[int, int], ...]) -> int:
    return sum(any(first <= character <= last for first, last in ranges) for character in characters)
