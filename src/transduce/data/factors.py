"""Source factors: the vocabulary of each factor, and lines of factors read beside the lines of the source.

A line of factors has one value, such as a part of speech, for each word of its source line. Both are
separated by white space.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from transduce.data.rows import Ids
from transduce.errors import DataError
from transduce.files import read_json

_COPY = "copy the whole model folder again"

NONE, UNKNOWN = 0, 1  # the factor of ``eos`` and of padding; a factor that is not in the vocabulary
_REMEDY = "give one line per source line, with one factor per word"


@dataclass(frozen=True)
class FactorVocabulary:
    """The known values of one factor; their ids follow `NONE` and `UNKNOWN`."""

    values: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> "FactorVocabulary":
        """Collect values, in an order that does not depend on theirs."""
        return cls(tuple(sorted(set(values))))

    def __len__(self) -> int:
        return UNKNOWN + 1 + len(self.values)

    def encode(self, values: Iterable[str]) -> Ids:
        """Return the id of each value."""
        ids = self._ids
        return np.array([ids.get(value, UNKNOWN) for value in values], np.uint32)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {value: number for number, value in enumerate(self.values, UNKNOWN + 1)}


def save_factors(factors: Sequence[FactorVocabulary], path: Path) -> None:
    """Write vocabularies as JSON: a list of values for each factor."""
    text = json.dumps([factor.values for factor in factors], ensure_ascii=False, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def load_factors(path: Path) -> tuple[FactorVocabulary, ...]:
    """Read what `save_factors` wrote."""
    lists = read_json(path, limit=1 << 28, error=DataError, remedy=_COPY)
    try:
        if not all(isinstance(value, str) for values in lists for value in values):
            raise TypeError("a value is not a text")
        return tuple(FactorVocabulary(tuple(values)) for values in lists)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}", _COPY) from error


class FactorLines:
    """Reads the lines of several factors in step with the lines of their source, and checks that they fit."""

    def __init__(self, factors: Sequence[Iterable[str]], names: Sequence[str] = ()) -> None:
        """``names`` are what errors call the factors, such as file names."""
        self._factors = [iter(lines) for lines in factors]
        self._names = names or [f"factor {number}" for number in range(1, len(factors) + 1)]
        self._read = 0

    def take(self, sources: Sequence[str | None]) -> list[list[str]]:
        """Return the lines of each factor for the next source lines; ``None`` is not compared with them."""
        factors = [list(islice(lines, len(sources))) for lines in self._factors]
        for name, lines in zip(self._names, factors, strict=True):
            for number, (line, source) in enumerate(zip(lines, sources, strict=False), self._read + 1):
                if source is not None and (count := len(line.split())) != (words := len(source.split())):
                    raise DataError(
                        f"{name}, line {number:,}: number of factors {count:,}, of source words {words:,}",
                        _REMEDY,
                    )
            if len(lines) < len(sources):
                missing = self._read + len(lines) + 1
                raise DataError(f"{name}, line {missing:,}: missing, but the source has this line", _REMEDY)
        self._read += len(sources)
        return factors

    def finish(self) -> None:
        """Raise a `DataError` if a factor has more lines than the source."""
        for name, lines in zip(self._names, self._factors, strict=True):
            if next(lines, None) is not None:
                raise DataError(
                    f"{name}, line {self._read + 1:,}: the source has only {self._read:,} lines", _REMEDY
                )
