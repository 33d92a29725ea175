"""Tokens as people can read them."""

from collections.abc import Sequence

from tokenizers import decoders, pre_tokenizers

from transduce.data.tokenizer import SideTokenizer

INSIDE = "·"  # before a piece that continues a word
SPACE = "␣"
_BEGINS_WORD = "Ġ"  # a space in the byte-level alphabet


def has_words(side: SideTokenizer) -> bool:
    """Whether its tokens say where words begin; those of characters and bytes do not."""
    pre = _pre_tokenizer(side)
    if isinstance(pre, pre_tokenizers.ByteLevel):
        return bool(pre.use_regex)
    return pre is not None


def readable(side: SideTokenizer, ids: Sequence[int]) -> list[str]:
    """Of each id: ``the``, ``·ing`` inside a word, ``␣``, ``</s>``, ``⟨E2⟩`` for part of a character."""
    pre, words = _pre_tokenizer(side), has_words(side)
    names = [side.backend.id_to_token(token) or f"⟨{token}⟩" for token in ids]
    return [
        name if token in side.special else _plain(name, pre, words)
        for token, name in zip(ids, names, strict=True)
    ]


def _pre_tokenizer(side: SideTokenizer) -> object:
    pre = side.backend.pre_tokenizer
    return pre[0] if isinstance(pre, pre_tokenizers.Sequence) else pre


def _plain(name: str, pre: object, words: bool) -> str:
    if isinstance(pre, pre_tokenizers.ByteLevel):
        begins = name.startswith(_BEGINS_WORD)
        text = _from_bytes(name.removeprefix("▁"))  # which marks pieces inside a word, too
    elif isinstance(pre, pre_tokenizers.Metaspace):
        begins, text = name.startswith("▁"), name.replace("▁", " ")
    elif words:  # WordPiece as BERT has it
        begins, text = not name.startswith("##"), name.removeprefix("##")
    else:
        begins, text = True, name
    if words and begins and text.startswith(" ") and len(text) > 1:
        text = text[1:]
    shown = "".join(SPACE if character.isspace() else character for character in text)
    return shown if begins or not words else f"{INSIDE}{shown}"


def _from_bytes(name: str) -> str:
    """The text of a token in the byte-level alphabet; bytes that are no whole characters, as numbers."""
    text: str = decoders.ByteLevel().decode([name])
    if "\N{REPLACEMENT CHARACTER}" not in text:
        return text
    values = [_BYTES[character] for character in name if character in _BYTES]
    lead = " " if values[:1] == [0x20] else ""
    numbers = " ".join(f"{value:02X}" for value in values[len(lead) :])
    return f"{lead}⟨{numbers}⟩"


def _byte_alphabet() -> dict[str, int]:
    """The alphabet of byte-level tokenizers: a printable character for every byte."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in itself]
    return {chr(value): value for value in itself} | {chr(256 + n): value for n, value in enumerate(others)}


_BYTES = _byte_alphabet()
