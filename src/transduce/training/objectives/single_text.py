"""The common part of objectives whose examples are one text each."""

from typing import Any

from transduce.config import TrainingConfig
from transduce.data.batching import group_steps, plan_batches
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
        self.shortest = int(self.lengths.min()) if len(self.lengths) else 0

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
