"""The result of a metric, and the options that change it."""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.data.normalization import DEFAULT, Normalization

References = Sequence[Sequence[str]]  # for each line, every accepted reference
COMET_MODEL = "Unbabel/wmt22-comet-da"


@dataclass(frozen=True)
class MetricOptions:
    """How hypotheses and references are compared."""

    lowercase: bool = False
    tokenize: str = "13a"  # BLEU's tokenization
    language: str | None = None  # language of the references, for the tokenization ``moses``
    resamples: int = 1000  # of the bootstrap
    comet_model: str = COMET_MODEL  # a name on the Hugging Face Hub, or a checkpoint file
    device: str = "auto"  # for COMET
    normalize: Normalization = DEFAULT  # for exact match and error rates


@dataclass(frozen=True)
class Measurement:
    """A score in percent (error rates may exceed 100) with its 95% confidence interval."""

    metric: str
    score: float
    low: float
    high: float
    signature: str  # everything else that the score depends on


@dataclass(frozen=True)
class Comparison:
    """The same metric of two systems."""

    first: Measurement
    second: Measurement
    p: float  # probability of a difference at least this large if the systems were equally good

    @property
    def difference(self) -> float:
        """The second system's score minus the first one's."""
        return self.second.score - self.first.score
