"""What is learned: an objective yields batches and their loss; the trainer knows no more."""

from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from transduce.config import TrainingConfig
from transduce.data.batching import Batch, collate, group_steps, plan_batches
from transduce.data.prepared import Pairs
from transduce.models.transformer import Transformer
from transduce.training.loss import Loss, chunked_loss

Indices = npt.NDArray[np.int64]


class Objective(Protocol):
    """Data and loss of one way to train."""

    def steps(self, epoch: int) -> list[list[Indices]]:
        """Which examples make up each step of an epoch, batch by batch: a function of the epoch alone."""
        ...

    def tokens(self, indices: Indices) -> int:
        """How many things are predicted in these examples."""
        ...

    def loss(self, model: Transformer, indices: Indices) -> Loss:
        """The summed loss of these examples."""
        ...

    def blind_loss(self, model: Transformer, indices: Indices) -> Loss | None:
        """The same with every example's input exchanged for another's; ``None`` if there is no such thing."""
        ...


class SequenceToSequence:
    """Read a source, predict its target."""

    def __init__(self, pairs: Pairs, training: TrainingConfig) -> None:
        self.pairs, self.training = pairs, training
        self.source_lengths, self.target_lengths = pairs.source.lengths, pairs.target.lengths

    def steps(self, epoch: int) -> list[list[Indices]]:
        """See `Objective`."""
        batches = plan_batches(
            self.source_lengths,
            self.target_lengths,
            max_tokens=self.training.max_tokens,
            seed=self.training.seed,
            epoch=epoch,
        )
        return group_steps(batches, self.target_lengths, self.training.batch_tokens or 1)

    def tokens(self, indices: Indices) -> int:
        """See `Objective`."""
        return int(self.target_lengths[indices].sum())

    def loss(self, model: Transformer, indices: Indices) -> Loss:
        """See `Objective`."""
        return batch_loss(model, self._read(model, indices), self.training.label_smoothing)

    def blind_loss(self, model: Transformer, indices: Indices) -> Loss | None:
        """See `Objective`."""
        if len(indices) < 2:
            return None
        batch = self._read(model, indices)
        return batch_loss(
            model, replace(batch, source=batch.source.roll(1, dims=0)), self.training.label_smoothing
        )

    def _read(self, model: Transformer, indices: Indices) -> Batch:
        return collate(self.pairs, indices, model.vocabulary).to(model.output.weight.device)


def batch_loss(model: Transformer, batch: Batch, smoothing: float) -> Loss:
    """Of a batch that is read already."""
    hidden = model.decode(batch.target, model.encode(batch.source))
    return chunked_loss(
        hidden, model.output.weight, batch.labels, pad=model.vocabulary.pad, smoothing=smoothing
    )
