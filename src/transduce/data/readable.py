"""Tokens as people can read them."""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import decoders, pre_tokenizers

from transduce.data.tokenizer import BYTE_LEVEL_SPACE, SideTokenizer
from transduce.errors import printable

INSIDE = "·"  # before a token that continues a word
SPACE = "␣"


class _Token(NamedTuple):
    text: str  # with a leading space where a word begins
    begins_word: bool
    raw: bytes = b""  # in place of text, the bytes of an incomplete character


def has_words(side: SideTokenizer) -> bool:
    """Return whether tokens show where words begin; those of characters and bytes do not."""
    pre = side.first_pre_tokenizer
    if isinstance(pre, pre_tokenizers.ByteLevel):
        return bool(pre.use_regex)
    return pre is not None


def readable(side: SideTokenizer, ids: Sequence[int]) -> list[str]:
    """Return each token as text.

    ``the`` begins a word, ``·ing`` continues one, ``␣`` is a space, ``</s>`` a special token, and ``⟨E2 82⟩``
    has the bytes of a part of a character.
    """
    known = side.readable_tokens  # filled as tokens occur: each is read once
    for token in ids:
        if token not in known:
            known[token] = _readable(side, token)
    return [known[token] for token in ids]


def _readable(side: SideTokenizer, token: int) -> str:
    name, words = side.token_at(token) or f"⟨{token}⟩", has_words(side)
    return name if token in side.special else _shown(_read(name, side.first_pre_tokenizer, words), words)


def _read(name: str, pre: object, words: bool) -> _Token:
    """Undo the notation of a tokenizer's vocabulary."""
    if isinstance(pre, pre_tokenizers.ByteLevel | pre_tokenizers.Split):  # Split: symbols separated by spaces
        begins = name.startswith(BYTE_LEVEL_SPACE)
        name = name.removeprefix("▁")  # marks tokens inside a word in some vocabularies
        text: str = decoders.ByteLevel().decode([name])
        if "\N{REPLACEMENT CHARACTER}" not in text:
            return _Token(text, begins)
        raw = bytes(_BYTES[character] for character in name if character in _BYTES)
        return _Token(" " if raw[:1] == b" " else "", begins, raw.removeprefix(b" "))
    if isinstance(pre, pre_tokenizers.Metaspace):
        return _Token(name.replace("▁", " "), name.startswith("▁"))
    if words:  # WordPiece as BERT uses it
        return _Token(name.removeprefix("##"), not name.startswith("##"))
    if len(name) == len("<0x00>") and name.startswith("<0x"):  # a byte in a vocabulary of characters
        return _Token("", True, bytes.fromhex(name[3:5]))
    return _Token(name, True)


def _shown(token: _Token, words: bool) -> str:
    text = token.text
    if words and token.begins_word and text.startswith(" ") and len(text) + len(token.raw) > 1:
        text = text[1:]
    shown = printable("".join(SPACE if character.isspace() else character for character in text))
    if token.raw:
        shown += f"⟨{token.raw.hex(' ').upper()}⟩"
    return shown if token.begins_word or not words else f"{INSIDE}{shown}"


def _byte_alphabet() -> dict[str, int]:
    """Return the alphabet of byte-level tokenizers: a printable character for every byte."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in itself]
    return {chr(value): value for value in itself} | {chr(256 + n): value for n, value in enumerate(others)}


_BYTES = _byte_alphabet()
