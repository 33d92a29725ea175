"""Cut lines into pieces that the model can read, and attach what each translation must contain."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.constraints import progress
from transduce.decoding.glossary import Glossary

_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+(?![a-z])|(?<=[。！？])\s*")
_PAUSE = re.compile(r"(?<=[,;:،])\s+")
_FULL_WIDTH_PAUSE = re.compile(r"(?<=[，；：、])")  # in scripts without spaces
_SHORT = 16  # characters; a shorter "sentence" may be an abbreviation


@dataclass(frozen=True)
class Piece:
    """A line, or a part of one, and what its translation must contain."""

    text: str
    ids: list[int]  # with ``eos``
    line: int  # the number of its line
    index: int  # its place in the line
    prefix: list[int]  # tokens with which the target begins
    phrases: list[list[int]]  # token sequences that the target contains

    @property
    def required_length(self) -> int:
        """The number of target tokens that the prefix and the phrases take."""
        return len(self.prefix) + sum(map(len, self.phrases))

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

    def split(self, lines: Sequence[str], first_line: int) -> list[SplitLine]:
        """Return the pieces of each line; ``first_line`` is the number of the first one."""
        encoded = self.tokenizer.encode_source(lines)
        return [
            SplitLine(line, len(ids), self._pieces(line, ids, number))
            for number, (line, ids) in enumerate(zip(lines, encoded, strict=True), first_line)
        ]

    def _pieces(self, line: str, ids: list[int], number: int) -> list[Piece]:
        if self._fits(ids):
            return [self._piece(line, ids, number, 0)]
        texts = split_text(line, lambda text: self._fits(self._encode(text)))
        return [
            self._piece(text, self._encode(text), number, index)
            for index, text in enumerate(texts[:1] if self.truncate else texts)
        ]

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode_source([text])[0]

    def _fits(self, ids: list[int]) -> bool:
        return self.max_tokens is None or len(ids) <= self.max_tokens

    def _piece(self, text: str, ids: list[int], line: int, index: int) -> Piece:
        words = self.glossary.required_words(text, is_first=index == 0) if self.glossary else []
        return Piece(text, ids, line, index, self._prefix if index == 0 else [], self._phrases(words))

    @cached_property
    def _prefix(self) -> list[int]:
        return self._phrases([self.prefix])[0] if self.prefix else []

    def _phrases(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids[:-1] for ids in self.tokenizer.encode_target(texts)] if texts else []


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
    for end in (match.end() for match in _SENTENCE_END.finditer(text)):
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
