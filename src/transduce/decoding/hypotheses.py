"""Targets that were found, and those under way."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor


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

    def grow(self, parents: Tensor, tokens: Tensor, sums: Tensor) -> "Beams":
        """One token more: from which hypotheses, which tokens, with which sums; (sentences, n) each."""
        rows = torch.arange(len(parents), device=parents.device)[:, None]
        steps = sums - self.sums[rows, parents]
        return Beams(
            self.sentences,
            sums,
            torch.cat([self.tokens[rows, parents], tokens[:, :, None]], dim=2),
            torch.cat([self.steps[rows, parents], steps[:, :, None]], dim=2),
            None if self.coverage is None else self.coverage[rows, parents],
        )

    def take(self, sentences: Tensor, order: Tensor) -> "Beams":
        """Of these sentences, (n,), these hypotheses, (n, width)."""
        rows = sentences[:, None]
        return Beams(
            [self.sentences[row] for row in sentences.tolist()],
            self.sums[rows, order],
            self.tokens[rows, order],
            self.steps[rows, order],
            None if self.coverage is None else self.coverage[rows, order],
        )
