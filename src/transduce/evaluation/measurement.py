"""What is measured, and how."""

from collections.abc import Sequence
from dataclasses import dataclass

References = Sequence[Sequence[str]]  # of each line, all that are allowed


@dataclass(frozen=True)
class Options:
    """How to compare texts."""

    lowercase: bool = False
    tokenize: str = "13a"  # for BLEU
    language: str | None = None  # of the translations, for ``moses``
    resamples: int = 1000


@dataclass(frozen=True)
class Measurement:
    """A score from 0 to 100 (error rates may be above), and how far it depends on the choice of the lines."""

    metric: str
    score: float
    low: float  # of the 95% interval
    high: float
    signature: str  # what else the score depends on


@dataclass(frozen=True)
class Comparison:
    """The same metric of two systems."""

    one: Measurement
    other: Measurement
    p: float  # how often chance alone would bring such a difference

    @property
    def difference(self) -> float:
        """How much higher the other one's score is."""
        return self.other.score - self.one.score
