"""What is translated at a time: a line, or a piece of one that is too long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.constraints import progress
from transduce.decoding.glossary import Glossary
from transduce.decoding.long_lines import split_text


@dataclass(frozen=True)
class Piece:
    """A source, and what its target must have."""

    text: str
    ids: list[int]  # with ``eos``
    number: tuple[int, int]  # of its line, and in it
    begin: list[int]  # of the target
    phrases: list[list[int]]  # in the target

    @property
    def least(self) -> int:
        """So many tokens have room for all that must be in the target."""
        return len(self.begin) + sum(map(len, self.phrases))

    def is_met_by(self, said: Sequence[int]) -> bool:
        """Whether a target has what it must have."""
        return list(said[: len(self.begin)]) == self.begin and not progress(said, self.phrases)[1]

    def draws(self, seed: int) -> np.random.Generator:
        """What is drawn for it, wherever and with whomever it is translated."""
        return np.random.default_rng([seed, *self.number])


@dataclass(frozen=True)
class Pieces:
    """How lines are cut: what must be in the target of a line belongs to its first piece."""

    tokenizer: TokenizerPair
    most: int | None  # tokens of a source
    whose: str  # limit that is
    cut: bool  # whether the first piece must do
    prefix: str
    glossary: Glossary
    warn: Callable[[str], None]

    def of(self, lines: Sequence[str], first: int) -> list[list[Piece]]:
        """The pieces of each line; the first line has the number ``first``."""
        encoded = self.tokenizer.encode_source(lines)
        texts = [
            [line] if self._fits(ids) else self._split(line) for line, ids in zip(lines, encoded, strict=True)
        ]
        if too_long := [row for row, ids in enumerate(encoded) if not self._fits(ids)]:
            self._warn(lines[too_long[0]], len(encoded[too_long[0]]), len(texts[too_long[0]]), len(too_long))
        return [
            [
                self._piece(text, ids if text is line else self._encode(text), (number, place))
                for place, text in enumerate(several)
            ]
            for number, (line, ids, several) in enumerate(zip(lines, encoded, texts, strict=True), first)
        ]

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode_source([text])[0]

    def _fits(self, ids: list[int]) -> bool:
        return self.most is None or len(ids) <= self.most

    def _split(self, line: str) -> list[str]:
        pieces = split_text(line, lambda text: self._fits(self._encode(text)))
        return pieces[:1] if self.cut else pieces

    def _piece(self, text: str, ids: list[int], number: tuple[int, int]) -> Piece:
        if number[1] == 0:
            return Piece(text, ids, number, self._begin, self._phrases(self.glossary.wanted(text)))
        return Piece(text, ids, number, [], self._phrases(Glossary(self.glossary.terms).wanted(text)))

    @cached_property
    def _begin(self) -> list[int]:
        return self._phrases([self.prefix])[0]

    def _phrases(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids[:-1] for ids in self.tokenizer.encode_target(texts)] if texts else []

    def _warn(self, line: str, size: int, pieces: int, count: int) -> None:
        """Once for all such lines that are read together."""
        others = f", as were {count - 1:,} after it that are too long" if count > 1 else ""
        done = "cut to the first of its pieces" if self.cut else f"translated in {pieces} pieces"
        self.warn(
            f"a line of {size} tokens is longer than {self.whose} {self.most} and was {done}{others}: "
            f"{line[:60]!r} ..."
        )
