"""Tokenizers of models that were trained with subword-nmt or fastBPE, and of models of whole words.

subword-nmt splits a text at spaces, merges the characters of a word, and marks every segment but the last of
a word: ``low@@ er``. A dictionary lists such segments. Here they become a `tokenizers.Tokenizer` with the
same ids, in which a token has the name that merging gives it: ``low`` for ``low@@``, and ``er</w>`` for
``er``.

Merging also creates segments that the dictionary lacks. The library needs a token for each, but to the model
they are unknown: `TokenMap` turns them into the unknown token.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from transduce.data.tokenizer import SideTokenizer
from transduce.errors import DataError
from transduce.files import read_text

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
CONTINUED = "@@"

_END = "</w>"
# The end of a word where it is a symbol of its own. No text has these code points: they are no characters.
_OWN_END, _AFTER_END = "\ufdd0", "\ufdd1"
_MAX_FILE = 64_000_000  # bytes
_REMEDY = "give the file of codes that subword-nmt or fastBPE wrote"


class BpeCodes(NamedTuple):
    """The merges of a file of BPE codes, first ones first."""

    merges: tuple[tuple[str, str], ...]
    has_own_end: bool  # whether </w> begins as a symbol of its own (version 0.1), not with the last character


def read_bpe_codes(path: str | Path) -> BpeCodes:
    """Read the codes of subword-nmt (0.2, or 0.1, which may have no header) or fastBPE (with counts)."""
    path = Path(path)
    lines = read_text(path, limit=_MAX_FILE, error=DataError, remedy=_REMEDY).rstrip("\n").split("\n")
    version = lines[0].split()[-1] if lines[0].startswith("#version:") else None
    if version not in (None, "0.1", "0.2"):
        raise DataError(f"{path} has BPE codes of the unknown version {version}", _REMEDY)
    first = 1 if version is None else 2
    rows = [line.strip("\r\n ").split(" ") for line in lines[first - 1 :]]
    has_counts = version is None and len(rows) > 0 and len(rows[0]) == 3
    merges: dict[tuple[str, str], None] = {}  # of equal ones the first counts
    for number, row in enumerate(rows, first):
        if len(row) != 2 + has_counts or not all(row) or (has_counts and not row[2].isdecimal()):
            raise DataError(f"{path}, line {number}: expected two symbols, found {len(row)} fields", _REMEDY)
        merges.setdefault((row[0], row[1]))
    return BpeCodes(tuple(merges), has_own_end=version != "0.2" and not has_counts)


def bpe_tokenizer(
    codes: BpeCodes,
    tokens: Sequence[str],
    *,
    lowercase: bool = False,
    special: Sequence[str] = SPECIAL,
    unknown: str = "<unk>",
) -> SideTokenizer:
    """Return a tokenizer whose ids are the places of segments in ``tokens``, a dictionary with special ones.

    Segments that ``tokens`` lacks are unknown, and so is a word that ends in ``@@``. Where codes are not in
    an order in which BPE learns them, subword-nmt may merge otherwise.
    """
    end = _OWN_END + _AFTER_END if codes.has_own_end else _END
    names = _names(tokens, end, special, unknown)
    merges = list(codes.merges)
    if codes.has_own_end:
        characters = {name.removesuffix(end) for name in names}
        merges = _with_own_end(merges, {name for name in characters if len(name) == 1}, unknown)
    own = sorted(names, key=names.__getitem__)
    for left, right in merges:
        for name in (left, right, left + right):
            names.setdefault(name, len(names))
    suffix = "" if codes.has_own_end else _END
    backend = Backend(models.BPE(names, merges, unk_token=unknown, end_of_word_suffix=suffix, fuse_unk=False))
    backend.normalizer = _normalizer(lowercase, codes.has_own_end)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    backend.decoder = decoders.BPEDecoder(suffix=end)
    backend.add_special_tokens([token for token in special if token in names])
    return SideTokenizer(backend, own)


def word_tokenizer(
    tokens: Sequence[str],
    *,
    lowercase: bool = False,
    special: Sequence[str] = SPECIAL,
    unknown: str = "<unk>",
) -> SideTokenizer:
    """Return a tokenizer that splits at white space; a word's id is its place in ``tokens``."""
    names: dict[str, int] = {}
    for token, name in enumerate(tokens):
        names.setdefault(_unused(name, names), token)
    _require_unknown(names, unknown)
    backend = Backend(models.WordLevel(names, unk_token=unknown))
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase()] if lowercase else [])
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([token for token in special if token in names])
    return SideTokenizer(backend)


def _names(tokens: Sequence[str], end: str, special: Sequence[str], unknown: str) -> dict[str, int]:
    """Return the name of each token of the dictionary, as merging composes it, and its id."""
    kept = {*special, unknown}
    names: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token in kept and token not in names:
            names[token] = number
    _require_unknown(names, unknown)
    taken = set(names.values())
    for number, token in enumerate(tokens):
        if number not in taken:
            is_continued = token.endswith(CONTINUED) and token != CONTINUED
            name = token.removesuffix(CONTINUED) if is_continued else token + end
            names[_unused(name, names)] = number
    return names


def _unused(name: str, names: dict[str, int]) -> str:
    """Return a name that is not taken; one with a space is that of a token that no text has."""
    while name in names:
        name = f"{name} "
    return name


def _require_unknown(names: dict[str, int], unknown: str) -> None:
    if unknown not in names:
        raise DataError(f"the dictionary has no token {unknown}", "give its special tokens, too")


def _with_own_end(merges: list[tuple[str, str]], characters: set[str], unknown: str) -> list[tuple[str, str]]:
    """Return merges for words that end in two symbols: the end of the word, and one after it.

    The codes' merges may take the first. Then, whatever it is part of merges with the second, which tells the
    last segment of a word from others; no merge of the codes can follow.
    """

    def named(symbol: str) -> str:
        return symbol.removesuffix(_END) + _OWN_END if symbol.endswith(_END) else symbol

    own = [(named(left), named(right)) for left, right in merges]
    symbols = {symbol for left, right in own for symbol in (left, right, left + right)} | characters
    finals = sorted(symbols - {_OWN_END} | {unknown})
    ending = [(symbol, _AFTER_END) for symbol in (_OWN_END, *finals) if symbol.endswith(_OWN_END)]
    end = _OWN_END + _AFTER_END
    return [*own, *ending, *((symbol, end) for symbol in finals if not symbol.endswith(_OWN_END))]


def _normalizer(lowercase: bool, has_own_end: bool) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(r"^[\r\n ]+|[\r\n ]+$"), "")]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if has_own_end:
        steps.append(normalizers.Replace(Regex(f"[{_OWN_END}{_AFTER_END}]"), "\ufffd"))
        steps.append(normalizers.Replace(Regex(r"(?<=[^ ])(?= |\z)"), _OWN_END + _AFTER_END))
    return normalizers.Sequence(steps)
