"""Targets that were found, and those under way."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor


@dataclass(frozen=True)
class Candidates:
    """Ways to go on, best first: (sentences, n) each."""

    sums: Tensor  # of log-probabilities, with the new token
    parents: Tensor  # which hypothesis of the sentence goes on
    tokens: Tensor

    @property
    def rows(self) -> Tensor:
        """The numbers of the sentences, (sentences, 1)."""
        return torch.arange(len(self.sums), device=self.sums.device)[:, None]

    @property
    def ranks(self) -> Tensor:
        """0, 1, … for each sentence."""
        return torch.arange(self.sums.size(1), device=self.sums.device).expand_as(self.sums)

    def take(self, order: Tensor) -> "Candidates":
        """Those of these ranks, (sentences, n)."""
        return Candidates(*(part.gather(1, order) for part in (self.sums, self.parents, self.tokens)))


@dataclass(frozen=True)
class Hypothesis:
    """A target that was found."""

    tokens: list[int]  # without ``eos``
    log_probabilities: list[float]  # a token each, and ``eos`` unless it was cut off
    score: float  # their sum over the length penalty, with the coverage penalty


def best_in_turn(groups: Sequence[Sequence[Hypothesis]], count: int) -> list[Hypothesis]:
    """So many of several groups, of which each has its best one first: each group's first, then the second
    ones, and no target twice. The result is best first.
    """
    ordered = sorted((group for group in groups if group), key=lambda group: -group[0].score)
    different: dict[tuple[int, ...], Hypothesis] = {}
    for one in (one for rank in zip_longest(*ordered) for one in rank if one):
        different.setdefault(tuple(one.tokens), one)
    return sorted(list(different.values())[:count], key=lambda one: -one.score)


@dataclass
class Beams:
    """The hypotheses that go on: ``width`` of them for each sentence that is not done."""

    sentences: list[int]  # which of the batch
    sums: Tensor  # (sentences, width), log-probabilities
    tokens: Tensor  # (sentences, width, length)
    steps: Tensor  # (sentences, width, length), the log-probability of each token
    coverage: Tensor | None = None  # (sentences, width, source), attention that each source token got so far

    @classmethod
    def start(cls, source: Tensor, *, covering: bool) -> "Beams":
        """Nothing was said yet about these sources, (sentences, source)."""
        count, length = source.shape
        empty = torch.empty(count, 1, 0, device=source.device)
        coverage = torch.zeros(count, 1, length, device=source.device) if covering else None
        return cls(list(range(count)), empty.new_zeros(count, 1), empty.long(), empty, coverage)

    @property
    def length(self) -> int:
        """How many tokens each has said."""
        return self.tokens.size(2)

    def grow(self, new: Candidates) -> "Beams":
        """One token more."""

        def of_parents(held: Tensor) -> Tensor:
            if held.size(1) == 1:  # which is everyone's parent
                return held.expand(-1, new.parents.size(1), *held.shape[2:])
            return held[new.rows, new.parents]

        steps = new.sums - of_parents(self.sums)
        return Beams(
            self.sentences,
            new.sums,
            torch.cat([of_parents(self.tokens), new.tokens[:, :, None]], dim=2),
            torch.cat([of_parents(self.steps), steps[:, :, None]], dim=2),
            None if self.coverage is None else of_parents(self.coverage),
        )

    def take(self, rows: Tensor) -> "Beams":
        """These sentences, (n,)."""
        return Beams(
            [self.sentences[row] for row in rows.tolist()],
            self.sums[rows],
            self.tokens[rows],
            self.steps[rows],
            None if self.coverage is None else self.coverage[rows],
        )
