"""Targets that were found, and those under way.

What was said is a few numbers a step, and every step looks at them: NumPy, whose calls take a fraction of the
time of torch's, has them in the machine's memory, wherever the model computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Ways to go on, best first: (sentences, n) each."""

    sums: Floats  # of log-probabilities, with the new token
    parents: Integers  # which hypothesis of the sentence goes on
    tokens: Integers

    @classmethod
    def of(cls, sums: Tensor, parents: Tensor, tokens: Tensor) -> "Candidates":
        """From wherever the model computes."""
        return cls(*(part.cpu().numpy() for part in (sums, parents, tokens)))

    @property
    def rows(self) -> Integers:
        """The numbers of the sentences, (sentences, 1)."""
        return np.arange(len(self.sums))[:, None]

    def take(self, order: Integers) -> "Candidates":
        """Those of these ranks, (sentences, n)."""
        rows = self.rows
        return Candidates(self.sums[rows, order], self.parents[rows, order], self.tokens[rows, order])


@dataclass(frozen=True)
class Hypothesis:
    """A finished target."""

    tokens: list[int]  # without ``eos``
    log_probabilities: list[float]  # one per token, and that of ``eos`` unless the target was cut off
    score: float  # their sum divided by the length penalty, plus the coverage penalty
    alignment: list[int] | None = None  # for each token, the source token that it attends to most


def best_in_turn(groups: Sequence[Sequence[Hypothesis]], count: int) -> list[Hypothesis]:
    """So many of several groups, of which each has its best one first: each group's first, then the second
    ones, and no target twice. The result is best first.
    """
    ordered = sorted((group for group in groups if group), key=lambda group: -group[0].score)
    different: dict[tuple[int, ...], Hypothesis] = {}
    for one in (one for rank in zip_longest(*ordered) for one in rank if one):
        different.setdefault(tuple(one.tokens), one)
    return sorted(list(different.values())[:count], key=lambda one: -one.score)


class Step(NamedTuple):
    """What each hypothesis said, one after the other of all sentences: (hypotheses,) each."""

    origins: Integers  # the hypothesis of the step before that it goes on from
    tokens: Integers
    sums: Floats


@dataclass
class Beams:
    """The hypotheses that go on: ``width`` of them for each sentence that is not done."""

    sentences: list[int]  # which of the batch
    sums: Floats  # (sentences, width), log-probabilities
    coverage: Tensor | None = None  # (sentences, width, source), attention that each source token got so far
    steps: list[Step] = field(default_factory=list)  # all that was said

    @classmethod
    def start(cls, sentences: Sequence[int], coverage: Tensor | None = None) -> "Beams":
        """Nothing was said yet: a hypothesis for each sentence."""
        return cls(list(sentences), np.zeros((len(sentences), 1), dtype=np.float32), coverage)

    @property
    def width(self) -> int:
        """Hypotheses of a sentence."""
        return int(self.sums.shape[1])

    @property
    def length(self) -> int:
        """How many tokens each has said."""
        return len(self.steps)

    @property
    def tokens(self) -> Integers:
        """All that each has said: (sentences, width, length)."""
        places = np.arange(self.sums.size)
        said = np.empty((self.length, len(places)), dtype=np.int64)
        for number in reversed(range(self.length)):
            origins, tokens, _ = self.steps[number]
            said[number] = tokens[places]
            places = origins[places]
        return said.T.reshape(*self.sums.shape, self.length)

    def spoken(self, new: Candidates, row: int, rank: int) -> tuple[list[int], list[float]]:
        """All tokens of a candidate, and the log-probability of each."""
        tokens, sums = [int(new.tokens[row, rank])], [float(new.sums[row, rank])]
        place = row * self.width + int(new.parents[row, rank])
        for step in reversed(self.steps):
            tokens.append(int(step.tokens[place]))
            sums.append(float(step.sums[place]))
            place = int(step.origins[place])
        sums.append(0.0)
        return tokens[::-1], [after - before for before, after in pairwise(reversed(sums))]

    def grow(self, new: Candidates, rows: Sequence[int]) -> Integers | None:
        """One token more in the sentences of these rows; the others are done.

        Gives the hypotheses from which those come that go on, (sentences, width), or nothing if each is where
        it was.
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
        """The newest tokens: (hypotheses,)."""
        return torch.from_numpy(self.steps[-1].tokens).to(device)
