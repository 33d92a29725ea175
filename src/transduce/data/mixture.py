"""Mixtures of corpora: files with weights, which say how often their pairs are seen in an epoch."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transduce.errors import ConfigError, DataError
from transduce.files import read_json

MIXTURE = "mixture.json"  # in the folder of the prepared training pairs
LARGEST_WEIGHT = 1000
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}")
_RESTORE = "restore the file, or start a new run in another folder"

Counts = npt.NDArray[np.int64]


def split_weight(path: Path) -> tuple[Path, float | None]:
    """Split ``FILE:WEIGHT``; the weight is ``None`` if there is none.

    A file whose whole name is ``a.tsv:3`` is that file, without a weight.
    """
    name, colon, text = str(path).rpartition(":")
    if not colon or os.path.exists(path):  # noqa: PTH110 (Path.exists raises errors for some names)
        return path, None
    if _NUMBER.fullmatch(text) and 0 < float(text) <= LARGEST_WEIGHT:
        return Path(name), float(text)
    if os.path.exists(name):  # noqa: PTH110
        raise ConfigError(
            f"{path}: {text!r} is not a weight", f"give a number above 0, up to {LARGEST_WEIGHT}: {name}:3"
        )
    return path, None


class MixturePart(NamedTuple):
    """Pairs in a row that have the same weight."""

    pairs: int
    weight: float


@dataclass(frozen=True)
class Mixture:
    """The weights of all pairs of a training corpus.

    In every epoch, a pair of weight 3 is seen three times. Of the pairs of weight 0.5, one half is seen in an
    epoch and the other half in the next; of those of weight 2.5, all are seen twice and one half once more.
    """

    parts: tuple[MixturePart, ...]

    def __str__(self) -> str:
        return " + ".join(f"{part.pairs:,} × {part.weight:g}" for part in self.parts)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weight of every pair: (pairs,)."""
        return np.repeat([part.weight for part in self.parts], [part.pairs for part in self.parts])

    def counts(self, seed: int, epoch: int) -> Counts:
        """Return how often each pair is seen in this epoch: (pairs,).

        The number is the weight, rounded up or down, and so is the sum over several epochs: all pairs of a
        part are on a circle, in an order that the seed determines, and every epoch goes on where the last one
        ended.
        """
        return np.concatenate(
            [self._part_counts(seed, epoch, number) for number in range(len(self.parts))]
        ).astype(np.int64)

    def _part_counts(self, seed: int, epoch: int, number: int) -> Counts:
        pairs, weight = self.parts[number]
        counts = np.full(pairs, int(weight))
        # A fraction is exact: one pair too few or too many would be seen if 0.29 × 100 were 28.999…
        per_epoch = Fraction(str(weight)) % 1 * pairs
        begin, end = int(epoch * per_epoch), int((epoch + 1) * per_epoch)
        if end > begin:
            circle = np.random.default_rng([seed, number]).permutation(pairs)
            counts[circle[(begin % pairs + np.arange(end - begin)) % pairs]] += 1
        return counts

    def save(self, folder: Path) -> None:
        """Write ``mixture.json``."""
        parts = [part._asdict() for part in self.parts]
        (folder / MIXTURE).write_text(f"{json.dumps(parts, indent=2)}\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, pairs: int) -> "Mixture | None":
        """Read what `save` wrote for this number of pairs; ``None`` if all pairs are seen once."""
        path = folder / MIXTURE
        if not path.exists():
            return None
        content = read_json(path, error=DataError, remedy=_RESTORE)
        try:
            parts = tuple(MixturePart(**part) for part in content)
        except TypeError as error:
            raise DataError(f"{path} is damaged: {error}", _RESTORE) from error
        if not all(map(_is_sound, parts)) or sum(part.pairs for part in parts) != pairs:
            raise DataError(f"{path} is damaged: it does not describe {pairs:,} pairs", _RESTORE)
        return cls(parts)


def mixture_of(pairs: Sequence[int], weights: Sequence[float]) -> Mixture | None:
    """Return the mixture of corpora with these numbers of pairs; ``None`` if all pairs are seen once."""
    parts = tuple(map(MixturePart, pairs, weights))
    return None if all(weight == 1 for weight in weights) else Mixture(parts)


def _is_sound(part: MixturePart) -> bool:
    return (
        isinstance(part.pairs, int)
        and isinstance(part.weight, int | float)
        and part.pairs >= 0
        and 0 < part.weight <= LARGEST_WEIGHT
    )
