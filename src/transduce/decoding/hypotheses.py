"""Hypotheses: finished targets, and those that a search still extends.

The bookkeeping of a search is a few numbers per step. It is done in NumPy on the CPU, whatever the model's
device: NumPy's calls take a fraction of the time of torch's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.models.protocol import SearchResult

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Possible next tokens of each sentence, best first: (sentences, n) each."""

    sums: Floats  # of log-probabilities, including the new token
    parents: Integers  # the hypothesis of the sentence that is extended
    tokens: Integers

    @classmethod
    def of(cls, sums: Tensor, parents: Tensor, tokens: Tensor) -> "Candidates":
        """Return candidates from tensors on any device."""
        return cls(*(part.cpu().numpy() for part in (sums, parents, tokens)))

    @property
    def rows(self) -> Integers:
        """The row of each sentence, (sentences, 1)."""
        return np.arange(len(self.sums))[:, None]

    def take(self, order: Integers) -> "Candidates":
        """Return the candidates with these ranks, (sentences, n)."""
        rows = self.rows
        return Candidates(self.sums[rows, order], self.parents[rows, order], self.tokens[rows, order])


@dataclass(frozen=True)
class Hypothesis:
    """A finished target."""

    tokens: list[int]  # without ``eos``
    log_probabilities: list[float]  # one per token, and that of ``eos`` unless the target was cut off
    score: float  # their sum divided by the length penalty, plus the coverage penalty
    alignment: list[int] | None = None  # for each token, the source token that fits it best

    @classmethod
    def of(cls, result: SearchResult, eos: int) -> "Hypothesis":
        """Return what a model's own search has found."""
        return cls(without_eos(result.tokens, eos), result.log_probabilities, result.score)


def without_eos(tokens: list[int], eos: int) -> list[int]:
    """Return tokens without a final ``eos``."""
    return tokens[:-1] if tokens[-1] == eos else tokens


def best_in_turn(groups: Sequence[Sequence[Hypothesis]], count: int) -> list[Hypothesis]:
    """Return ``count`` hypotheses of several groups: the best of each group, then the second best, and so on.

    No target is taken twice. The groups are best first, and so is the result.
    """
    ordered = sorted((group for group in groups if group), key=lambda group: -group[0].score)
    different: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in (each for rank in zip_longest(*ordered) for each in rank if each):
        different.setdefault(tuple(hypothesis.tokens), hypothesis)
    return sorted(list(different.values())[:count], key=lambda hypothesis: -hypothesis.score)


class Step(NamedTuple):
    """One step of all hypotheses of all sentences: (hypotheses,) each."""

    origins: Integers  # the hypothesis of the previous step that was extended
    tokens: Integers
    sums: Floats


@dataclass
class Beams:
    """The running hypotheses: ``width`` of them for each sentence whose search has not ended."""

    sentences: list[int]  # their rows in the batch
    sums: Floats  # (sentences, width), of log-probabilities
    coverage: Tensor | None = None  # (sentences, width, source), attention received so far
    steps: list[Step] = field(default_factory=list)  # from the first to the last

    @classmethod
    def start(cls, sentences: Sequence[int], coverage: Tensor | None = None) -> "Beams":
        """Return one empty hypothesis for each sentence."""
        return cls(list(sentences), np.zeros((len(sentences), 1), dtype=np.float32), coverage)

    @property
    def width(self) -> int:
        """The number of hypotheses per sentence."""
        return int(self.sums.shape[1])

    @property
    def length(self) -> int:
        """The number of tokens of each hypothesis."""
        return len(self.steps)

    @property
    def tokens(self) -> Integers:
        """The tokens of each hypothesis: (sentences, width, length)."""
        places = np.arange(self.sums.size)
        result = np.empty((self.length, len(places)), dtype=np.int64)
        for number in reversed(range(self.length)):
            origins, tokens, _ = self.steps[number]
            result[number] = tokens[places]
            places = origins[places]
        return result.T.reshape(*self.sums.shape, self.length)

    def history(self, new: Candidates, row: int, rank: int) -> tuple[list[int], list[float]]:
        """Return all tokens of a candidate, and the log-probability of each."""
        tokens, sums = [int(new.tokens[row, rank])], [float(new.sums[row, rank])]
        place = row * self.width + int(new.parents[row, rank])
        for step in reversed(self.steps):
            tokens.append(int(step.tokens[place]))
            sums.append(float(step.sums[place]))
            place = int(step.origins[place])
        sums.append(0.0)
        return tokens[::-1], [after - before for before, after in pairwise(reversed(sums))]

    def grow(self, new: Candidates, rows: Sequence[int]) -> Integers | None:
        """Extend the hypotheses of the sentences in these rows by one token; the other sentences have ended.

        Return the origin of each hypothesis, (sentences, width), or ``None`` if each stays in its place.
        """
        origins, sums, tokens = new.rows * self.width + new.parents, new.sums, new.tokens
        before = self.sums.shape
        if len(rows) < len(self.sentences):
            self.sentences = [self.sentences[row] for row in rows]
            chosen = np.array(rows, dtype=np.int64)
            origins, sums, tokens = origins[chosen], sums[chosen], tokens[chosen]
        self.steps.append(Step(origins.ravel(), tokens.ravel(), sums.ravel()))
        self.sums = sums
        if sums.shape == before and (origins.ravel() == np.arange(origins.size)).all():
            return None
        if self.coverage is not None:
            places = torch.from_numpy(origins).to(self.coverage.device)
            self.coverage = self.coverage.flatten(0, 1)[places]
        return origins

    def last(self, device: torch.device) -> Tensor:
        """Return the last token of each hypothesis: (hypotheses,)."""
        return torch.from_numpy(self.steps[-1].tokens).to(device)
