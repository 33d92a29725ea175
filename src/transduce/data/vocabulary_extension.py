"""Characters that a ready-made tokenizer does not know, and tokens for them in its vocabulary.

The new tokens belong to the tokenizer's model, like all others. (What the ``tokenizers`` library calls an
added token is cut out of the text before anything else, so that the text around it is segmented differently.)
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from transduce.data.tokenizer import SideTokenizer
from transduce.data.tokenizer_guard import guarded
from transduce.errors import DataError, printable

_NAME = "the tokenizer of the model"
# The library scores an unknown character of a unigram model 10 below the least probable token. A new token
# with that score is used where there was an unknown one, and nowhere else.
_UNKNOWN_PENALTY = 10.0


@dataclass
class UnknownSymbols:
    """What a tokenizer does not know of a text: symbols are its characters as the vocabulary writes them."""

    lines: int = 0  # with an unknown symbol
    total_lines: int = 0
    characters: dict[str, str] = field(default_factory=dict)  # of each symbol that can become a token
    counts: Counter[str] = field(default_factory=Counter)  # of each symbol, in lines

    @property
    def symbols(self) -> list[str]:
        """The symbols that can become tokens, frequent ones first."""
        return sorted(self.characters, key=lambda symbol: (-self.counts[symbol], symbol))

    def examples(self, number: int = 10) -> str:
        """Return the most frequent of the characters."""
        characters = list(dict.fromkeys(self.characters[symbol] for symbol in self.symbols))
        shown = " ".join(printable(character) for character in characters[:number])
        return f"{shown} …" if len(characters) > number else shown


class SymbolTable:
    """The model of a tokenizer, by which it knows symbols."""

    def __init__(self, side: SideTokenizer) -> None:
        self.side = side
        with guarded(_NAME, "cannot be copied", muted=True):
            self.content: dict[str, Any] = json.loads(side.backend.to_str())
        self.model: dict[str, Any] = self.content["model"]
        self.kind = str(self.model.get("type"))
        self.vocabulary: Mapping[str, int] = side.backend.get_vocab(with_added_tokens=False)
        self.unknown = self.model.get("unk_id")
        if self.unknown is None:
            self.unknown = self.vocabulary.get(self.model.get("unk_token") or "")
        if side.map is not None:
            self.unknown = side.map.unknown

    @property
    def is_complete(self) -> bool:
        """Whether every text can be spelled: in bytes, if it has to be."""
        if self.model.get("byte_fallback"):
            return all(f"<0x{byte:02X}>" in self.vocabulary for byte in range(256))
        is_byte_level = '"ByteLevel"' in json.dumps(self.content.get("pre_tokenizer"))
        return is_byte_level and all(
            symbol in self.vocabulary for symbol in pre_tokenizers.ByteLevel.alphabet()
        )

    def find_unknown(self, texts: Iterable[Sequence[str]]) -> UnknownSymbols:
        """Examine lists of texts."""
        found, known_words = UnknownSymbols(), dict[str, dict[str, str | None]]()
        for lines in texts:
            found.total_lines += len(lines)
            with guarded(_NAME, "fails to split a text", muted=True):
                for line in self._doubtful(lines):
                    self._examine(line, found, known_words)
            if len(known_words) > 1_000_000:
                known_words.clear()
        return found

    def _doubtful(self, lines: Sequence[str]) -> list[str]:
        """Return the lines with an unknown token; all lines if there is no such token."""
        if self.unknown is None:
            return list(lines)
        rows = self.side.rows(lines)
        ends = np.cumsum(rows.lengths)
        places = np.flatnonzero(rows.ids == self.unknown)
        return [lines[row] for row in np.unique(np.searchsorted(ends, places, side="right")).tolist()]

    def _examine(
        self, line: str, found: UnknownSymbols, known_words: dict[str, dict[str, str | None]]
    ) -> None:
        missing: dict[str, str | None] = {}
        for word in self._words(line):
            if word not in known_words:
                known_words[word] = {
                    symbol: character
                    for symbol, character in self._symbols(word)
                    if symbol not in self.vocabulary and not self._is_spelled(symbol)
                }
            missing.update(known_words[word])
        found.lines += bool(missing)
        found.counts.update(missing.keys())
        found.characters.update({symbol: one for symbol, one in missing.items() if one is not None})

    def _words(self, line: str) -> list[str]:
        """Split a line as the tokenizer does it before it looks into its vocabulary."""
        backend = self.side.backend
        (text,) = self.side.normalized([line])
        for name in () if backend.encode_special_tokens else self.side.special.values():
            text = text.replace(name, " ")
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        if backend.pre_tokenizer is None:
            return [text]
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]

    def _symbols(self, word: str) -> Iterator[tuple[str, str | None]]:
        """Yield how the vocabulary writes each character of a word, and the character.

        A vocabulary of words has no characters, unless they are words of their own.
        """
        if self.kind == "WordLevel":
            yield word, word if len(word) == 1 else None
            return
        prefix = self.model.get("continuing_subword_prefix") or ""
        suffix = self.model.get("end_of_word_suffix") or ""
        for place, character in enumerate(word):
            begin = prefix if place else ""
            end = suffix if place == len(word) - 1 else ""
            yield f"{begin}{character}{end}", character

    def _is_spelled(self, symbol: str) -> bool:
        return bool(self.model.get("byte_fallback")) and all(
            f"<0x{byte:02X}>" in self.vocabulary for byte in symbol.encode()
        )


def extend_vocabulary(side: SideTokenizer, symbols: Sequence[str]) -> SideTokenizer:
    """Return a tokenizer with new tokens, whose ids follow the old ones; all others keep theirs.

    Text without these symbols is segmented as before.
    """
    table = SymbolTable(side)
    # Tokens outside the model would get ids after those of a larger model: they move into it.
    outside = side.backend.get_vocab(with_added_tokens=True).items() - table.vocabulary.items()
    first = max(side.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    added = [*sorted(outside, key=lambda item: item[1]), *zip(symbols, count(first), strict=False)]
    vocabulary = table.model.get("vocab")
    if isinstance(vocabulary, list):
        _extend_list(vocabulary, added)
    elif isinstance(vocabulary, dict):
        vocabulary.update(added)
    with guarded(_NAME, "cannot be extended", muted=True):
        backend = Backend.from_str(json.dumps(table.content, ensure_ascii=False))
    tokens = None if side.map is None else [*side.map.tokens, *symbols]
    extended = SideTokenizer(backend, tokens, plain=side.backend.encode_special_tokens, name=_NAME)
    expected = {**side.backend.get_vocab(), **dict(added)}
    if backend.get_vocab() != expected or extended.size != side.size + len(symbols):
        raise _not_extensible(table.kind)
    return extended


def know_characters(backend: Backend, tokens: Sequence[str]) -> Backend:
    """Return a tokenizer that knows all tokens of a model's vocabulary that are single characters.

    Where SentencePiece does not know a character, it gives the character itself as a piece. A vocabulary that
    was made from the pieces of two SentencePiece models may contain it.
    """
    known = backend.get_vocab(with_added_tokens=True)
    missing = [token for token in tokens if len(token) == 1 and token not in known]
    return extend_vocabulary(SideTokenizer(backend), missing).backend if missing else backend


def _extend_list(vocabulary: list[list[Any]], added: list[tuple[str, int]]) -> None:
    """Append tokens to the list of a unigram model, in which a token's place is its id."""
    score = min((score for _, score in vocabulary), default=0.0) - _UNKNOWN_PENALTY
    for token, number in added:
        if number != len(vocabulary):
            raise _not_extensible("Unigram")
        vocabulary.append([token, score])


def _not_extensible(kind: str) -> DataError:
    return DataError(
        f"the vocabulary of the model ({kind}) cannot be extended: its ids are not in a row",
        "leave out --extend-vocabulary",
    )
