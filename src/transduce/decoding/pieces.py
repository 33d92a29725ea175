"""Cut lines into pieces that the model can read, and attach what each translation must contain."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from transduce.data.sentences import sentence_spans
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.constraints import progress
from transduce.decoding.glossary import Glossary

_PAUSE = re.compile(r"(?<=[,;:،])\s+")
_FULL_WIDTH_PAUSE = re.compile(r"(?<=[，；：、])")  # in scripts without spaces
_SHORT = 16  # characters; so short a sentence needs no piece of its own


@dataclass(frozen=True)
class Piece:
    """A line, or a part of one, and what its translation must contain."""

    text: str
    ids: list[int]  # with the tokens that frame every source, such as ``eos``
    line: int  # the number of its line
    index: int  # its place in the line
    prefix: list[int]  # tokens with which the target begins
    phrases: list[list[int]]  # token sequences that the target contains
    factors: list[list[int]] = field(default_factory=list)  # for each source factor, an id per token
    is_blank: bool = False  # whether there is nothing to translate

    @property
    def source(self) -> npt.NDArray[np.int64]:
        """What the model reads: its ids, (tokens,), or with factors (tokens, 1 + factors)."""
        return np.array(list(zip(self.ids, *self.factors, strict=True)) if self.factors else self.ids)

    @property
    def required(self) -> list[int]:
        """The target tokens of the prefix and the phrases."""
        return [*self.prefix, *chain.from_iterable(self.phrases)]

    @property
    def required_length(self) -> int:
        """The number of target tokens that the prefix and the phrases take."""
        return len(self.required)

    def is_satisfied_by(self, target: Sequence[int]) -> bool:
        """Return whether a target has the prefix and all phrases."""
        starts = list(target[: len(self.prefix)]) == self.prefix
        return starts and not (self.phrases and progress(target, self.phrases)[1])

    def generator(self, seed: int) -> np.random.Generator:
        """Return its random numbers, which do not depend on the batch it is in."""
        return np.random.default_rng([seed, self.line, self.index])


@dataclass(frozen=True)
class SplitLine:
    """A line and its pieces."""

    text: str
    tokens: int  # of the whole line
    pieces: list[Piece]


@dataclass(frozen=True)
class LineSplitter:
    """Cuts lines that are longer than ``max_tokens`` into pieces.

    The prefix and the words that every translation must contain belong to the first piece of a line.
    """

    tokenizer: TokenizerPair
    max_tokens: int | None
    truncate: bool  # keep the first piece only
    prefix: str
    glossary: Glossary | None

    def split(
        self, lines: Sequence[str], first_line: int, factors: Sequence[Sequence[str]] = ()
    ) -> list[SplitLine]:
        """Return the pieces of each line; ``first_line`` is the number of the first one.

        ``factors`` has for each source factor a line per line; see `TokenizerPair.source_columns`.
        """
        encoded = [rows.tolist() for rows in self.tokenizer.source_columns(lines, factors)]
        return [
            SplitLine(
                line,
                len(encoded[0][row]),
                self._pieces(
                    line, [ids[row] for ids in encoded], first_line + row, [values[row] for values in factors]
                ),
            )
            for row, line in enumerate(lines)
        ]

    def _pieces(self, line: str, columns: list[list[int]], number: int, factors: list[str]) -> list[Piece]:
        if self._fits(columns[0]):
            return [self._piece(line, columns, number, 0)]
        texts = split_text(
            line, lambda text: self._fits(self.tokenizer.source.encode([text])[0], self._frame)
        )
        kept = texts[:1] if self.truncate else texts
        split_factors = zip(*(_split_factors(values, line, kept) for values in factors), strict=True)
        return [
            self._piece(text, self._encode(text, next(split_factors, ())), number, index)
            for index, text in enumerate(kept)
        ]

    def _encode(self, text: str, factors: Sequence[str]) -> list[list[int]]:
        columns = self.tokenizer.source_columns([text], [[values] for values in factors])
        return [rows.tolist()[0] for rows in columns]

    def _fits(self, ids: list[int], extra: int = 0) -> bool:
        return self.max_tokens is None or len(ids) + extra <= self.max_tokens

    def _piece(self, text: str, columns: list[list[int]], line: int, index: int) -> Piece:
        ids, *factors = columns
        words = self.glossary.required_words(text, is_first=index == 0) if self.glossary else []
        prefix = self._prefix if index == 0 else []
        is_blank = len(ids) <= self._frame
        return Piece(text, ids, line, index, prefix, self._phrases(words), factors, is_blank)

    @cached_property
    def _frame(self) -> int:
        """The number of tokens that a source has besides those of its text."""
        return sum(self.tokenizer.source_frame)

    @cached_property
    def _prefix(self) -> list[int]:
        return self._phrases([self.prefix])[0] if self.prefix else []

    def _phrases(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.target.encode(texts) if texts else []


def _split_factors(factors: str, line: str, pieces: Sequence[str]) -> list[str]:
    """Return the factors of each piece of a line; both parts of a word that was split get its factor."""
    by_character = [
        value for value, word in zip(factors.split(), line.split(), strict=True) for _ in range(len(word))
    ]
    split, place = [], 0
    for piece in pieces:
        values = []
        for word in piece.split():
            values.append(by_character[place])
            place += len(word)
        split.append(" ".join(values))
    return split


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split a text into pieces that fit.

    Pieces are single sentences, because models are trained on these. A sentence that is too long is split
    at pauses if possible, else between words, else anywhere.
    """
    if fits(text):
        return [text]
    sentences = _sentences(text)
    if len(sentences) > 1:
        return [piece for sentence in sentences for piece in split_text(sentence, fits)]
    for separated, glue in (
        (_PAUSE.split(text), " "),
        (_FULL_WIDTH_PAUSE.split(text), ""),
        (text.split(), " "),
        (list(text), ""),
    ):
        parts = [part for part in separated if part]
        if len(parts) > 1:
            return [piece for joined in _gather(parts, glue, fits) for piece in split_text(joined, fits)]
    return [text]  # a single character


def _sentences(text: str) -> list[str]:
    """Split at the ends of sentences; short ones stay with the next."""
    pieces, begin = [], 0
    for _, end in sentence_spans(text):
        if end - begin >= _SHORT:
            pieces.append(text[begin:end])
            begin = end
    return [piece.strip() for piece in (*pieces, text[begin:]) if piece.strip()]


def _gather(parts: list[str], glue: str, fits: Callable[[str], bool]) -> list[str]:
    """Join neighboring parts as long as they fit."""
    pieces: list[str] = []
    for part in parts:
        longer = f"{pieces[-1]}{glue}{part}" if pieces else part
        if pieces and fits(longer):
            pieces[-1] = longer
        else:
            pieces.append(part)
    return pieces
