"""Ids of models that number their tokens differently from their tokenizer, such as a SentencePiece model."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from transduce.data.wordpiece import MAX_TOKENS
from transduce.errors import DataError
from transduce.files import read_json

_LARGEST = 256_000_000  # bytes
UNKNOWN = ("<unk>", "[UNK]", "<UNK>", "unk")


class TokenMap:
    """The tokens of a model in the order of their ids, and how a tokenizer's ids become the model's.

    Tokens that the model does not have become its unknown token. So do texts that the tokenizer does not
    know, unless they are tokens of the model: a vocabulary of both languages has the other's characters.
    """

    def __init__(self, tokens: Sequence[str], backend: Backend, name: str) -> None:
        self.tokens = list(tokens)
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            raise DataError(f"{name} has two tokens of the same name", "use another tokenizer")
        self._backend = backend
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.unknown = next((self.ids[token] for token in UNKNOWN if token in self.ids), None)
        default = len(self.tokens) if self.unknown is None else self.unknown
        self.to_model = np.full(max(vocabulary.values(), default=-1) + 1, default, np.uint32)
        for token, number in vocabulary.items():
            self.to_model[number] = self.ids.get(token, default)
        self._their_unknown = next((vocabulary[token] for token in UNKNOWN if token in vocabulary), None)
        if self.unknown is None and any(token not in self.ids for token in vocabulary):
            lacking = next(token for token in vocabulary if token not in self.ids)
            raise DataError(
                f"the tokenizer {name} has the token {lacking!r}, which the model has not, and the model has "
                "no token for unknown text",
                "give the tokenizer that the model was trained with",
            )

    def has_unknown(self, encoding: Encoding) -> bool:
        """Return whether the tokenizer does not know a part of a text."""
        return self._their_unknown in encoding.ids

    def encode(self, encoding: Encoding) -> list[int]:
        """Return the model's ids of an encoded text; if it `has_unknown`, its tokens must be there, too."""
        ids: list[int] = self.to_model[encoding.ids].tolist()
        if self.has_unknown(encoding):
            tokens = encoding.tokens  # of an unknown text, a unigram tokenizer has the text itself here
            for place, number in enumerate(encoding.ids):
                if number == self._their_unknown and not tokens[place].endswith(">"):  # no special token
                    ids[place] = self.ids.get(tokens[place], ids[place])
        return ids

    def special(self, names: Iterable[str]) -> dict[int, str]:
        """Return the ids of the tokens with these names, and the names."""
        return {self.ids[name]: name for name in names if name in self.ids}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, which may be tokens that the tokenizer itself does not have."""
        tokens = [self.tokens[number] for number in ids]
        decoder = self._backend.decoder
        text: str = " ".join(tokens) if decoder is None else decoder.decode(tokens)
        return text

    def save(self, path: Path) -> None:
        """Write the tokens as JSON."""
        path.write_text(json.dumps(self.tokens, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def load_tokens(path: Path) -> list[str]:
    """Read what `TokenMap.save` wrote."""
    tokens = read_json(path, limit=_LARGEST, error=DataError, remedy="copy the model folder again")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DataError(f"{path} is not a list of tokens", "copy the model folder again")
    if len(tokens) > MAX_TOKENS:
        raise DataError(f"{path} has more than {MAX_TOKENS:,} tokens", "copy the model folder again")
    return tokens
