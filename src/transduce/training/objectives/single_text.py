"""The common part of objectives whose examples are one text each."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.config import TrainingConfig
from transduce.data.batching import Row, group_steps, plan_batches
from transduce.data.prepared import Sequences
from transduce.training.loss import Loss
from transduce.training.objectives.objective import Indices


class SingleTextObjective:
    """Batches of texts of similar length, without a source that could be exchanged."""

    example = "text"
    ignored_source = "the predictions of the model do not depend on its input."
    longest_source: int | None = None

    def __init__(self, texts: Sequences, training: TrainingConfig) -> None:
        self.texts, self.training = texts, training
        self.lengths: Indices = texts.lengths

    def steps(self, epoch: int) -> list[list[Indices]]:
        """Return the batches of each step of an epoch."""
        batches = plan_batches(
            self.lengths,
            self.lengths,
            max_tokens=self.training.max_tokens,
            seed=self.training.seed,
            epoch=epoch,
        )
        return group_steps(batches, self.lengths, self.training.batch_tokens or 1)

    def microbatches(self, model: Any, indices: Indices, epoch: int) -> list[Indices]:
        """Return the batch as it is: it is never larger than planned."""
        return [indices]

    def shuffled_source_loss(self, model: Any, indices: Indices) -> Loss | None:
        """Return ``None``: a single text has no source."""
        return None


def pad_rows(rows: list[Row], pad: int) -> Tensor:
    """Return the rows as one tensor, (batch, length), padded at the end."""
    padded = np.full((len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for padded_row, row in zip(padded, rows, strict=True):
        padded_row[: len(row)] = row
    return torch.from_numpy(padded)
