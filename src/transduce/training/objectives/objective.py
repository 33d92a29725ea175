"""The contract between the trainer and what it trains: an objective yields batches and their loss."""

from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from torch import nn

from transduce.errors import ConfigError
from transduce.models.protocol import Model
from transduce.training.loss import Loss

Indices = npt.NDArray[np.int64]
ModelT_contra = TypeVar("ModelT_contra", contravariant=True)


class Objective(Protocol[ModelT_contra]):
    """Data and loss of one kind of training, for models that have the methods it calls."""

    example: str  # the name of one example in messages: "pair", "text", "image"
    ignored_source: str  # a warning about a model whose predictions do not depend on its source
    longest_source: int | None  # tokens of the longest training source; None where there are no sources
    shortest: int  # tokens of the shortest example, on its longer side

    def steps(self, epoch: int) -> list[list[Indices]]:
        """Return the batches of each step of an epoch, as indices of examples.

        The result depends on the epoch and the configured seed alone.
        """
        ...

    def microbatches(self, model: ModelT_contra, indices: Indices, epoch: int) -> list[Indices]:
        """Split a training batch that is larger than planned into parts that are computed one by one."""
        ...

    def loss(self, model: ModelT_contra, indices: Indices, epoch: int) -> Loss:
        """Return the summed loss of these examples."""
        ...

    def shuffled_source_loss(self, model: ModelT_contra, indices: Indices) -> Loss | None:
        """Return the loss when each example gets the source of another one.

        ``None`` if examples have no source that could be exchanged.
        """
        ...


def check_max_tokens(objective: Objective[Any], max_tokens: int) -> None:
    """Raise a `ConfigError` if no example fits into a batch: each would be one, and over the budget."""
    if objective.shortest > max_tokens:
        raise ConfigError(
            f"max_tokens is {max_tokens:,}, but the shortest {objective.example} has {objective.shortest:,} "
            "tokens",
            "set training.max_tokens to several times as much",
        )


def other_examples(indices: Indices, count: int) -> Indices:
    """Return another example for each of a batch, out of ``count`` in all: its neighbor in the batch."""
    return np.roll(indices, 1) if len(indices) > 1 else (indices + 1) % count


class LossModule(nn.Module):
    """A module whose forward pass returns a loss, so that FSDP can wrap it."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, objective: Objective[Any], indices: Indices, epoch: int, shuffle_source: bool = False
    ) -> Loss | None:
        """Return the objective's loss, or its loss with shuffled sources."""
        if shuffle_source:
            return objective.shuffled_source_loss(self.model, indices)
        return objective.loss(self.model, indices, epoch)
