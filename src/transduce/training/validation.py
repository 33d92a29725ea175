"""How well a model predicts what it was not trained on, and whether it reads its source at all."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from transduce.training.distributed import WorkerGroup
from transduce.training.loss import Loss
from transduce.training.memory import split
from transduce.training.objectives.objective import Objective

Figures = npt.NDArray[np.float64]  # negative log-likelihood, correct, tokens

SHUFFLED_SOURCE_BATCHES = 10
IGNORED = 0.02  # nats a token: less than this between right and wrong sources is no difference


@dataclass(frozen=True)
class Validation:
    """Figures a token."""

    loss: float  # negative log-likelihood, in nats
    accuracy: float
    shuffled_source_loss: float  # the same for sources that belong to other targets

    @property
    def perplexity(self) -> float:
        """e to the loss."""
        return math.exp(min(self.loss, 100))

    @property
    def ignores_its_source(self) -> bool:
        """Whether it makes no difference to the model which source it reads."""
        return self.shuffled_source_loss - self.loss < IGNORED


@torch.no_grad()
def validate(module: nn.Module, data: Objective[Any], team: WorkerGroup, parts: int = 1) -> Validation:
    """Look at all data once, without dropout; at some of it with exchanged sources too.

    Every batch is computed in so many ``parts``.
    """
    module.eval()
    everything, blind, same = np.zeros(3), np.zeros(3), np.zeros(3)
    batches = [indices for step in data.steps(epoch=0) for indices in step]
    for number, share in enumerate(team.share(split(batches, parts))):
        counts = 0 if share.idle else 1
        seen = _figures(module(data, share.indices, 0)) * counts
        everything += seen
        if number < SHUFFLED_SOURCE_BATCHES * parts and (
            other := module(data, share.indices, 0, shuffle_source=True)
        ):
            blind += _figures(other) * counts
            same += seen  # compared on the same batches: the difference is what counts
    module.train()
    loss, accuracy = _mean(everything, team)
    return Validation(loss, accuracy, loss + _mean(blind, team)[0] - _mean(same, team)[0])


def _figures(loss: Loss) -> Figures:
    return np.array([loss.negative_log_likelihood, loss.correct, loss.tokens], dtype=np.float64)


def _mean(sums: Figures, team: WorkerGroup) -> tuple[float, float]:
    """Negative log-likelihood and accuracy, a token, of all processes."""
    nll, correct, tokens = team.sum(sums.tolist())
    return (nll / tokens, correct / tokens) if tokens else (math.nan, math.nan)
