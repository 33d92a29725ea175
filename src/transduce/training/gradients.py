"""The gradients of one training step, accumulated over its batches."""

from typing import Any, NamedTuple

from torch import nn

from transduce.models.protocol import Model
from transduce.training.distributed import Microbatch, WorkerGroup
from transduce.training.objectives.objective import Indices, Objective
from transduce.training.precision import autocast


class LossSums(NamedTuple):
    """Sums over the tokens of a step."""

    loss: float  # what is minimized
    nll: float  # negative log-likelihood, without label smoothing
    tokens: float


class GradientAccumulator:
    """Accumulates the gradients of batches in a model, one microbatch after the other."""

    def __init__(
        self,
        module: nn.Module,
        model: Model,
        data: Objective[Any],
        precision: str,
        workers: WorkerGroup,
    ) -> None:
        """Take the `LossModule` of ``model`` as `WorkerGroup.wrap` returned it."""
        self.module, self.model, self.data = module, model, data
        self.precision, self.workers = precision, workers

    def accumulate(self, batches: list[Indices], epoch: int) -> LossSums:
        """Add this process's share of the gradients to those in the model; return its share of the sums."""
        loss, nll, tokens = 0.0, 0.0, 0
        microbatches = self._microbatches(batches, epoch)
        for number, microbatch in enumerate(microbatches, start=1):
            with self.workers.accumulate(self.module, is_last=number == len(microbatches)):
                with autocast(self.precision, self.workers.device):
                    result = self.module(self.data, microbatch.indices, epoch)
                (result.smoothed * 0 if microbatch.is_dummy else result.smoothed).backward()
            if not microbatch.is_dummy:
                loss, nll = loss + result.smoothed.item(), nll + result.negative_log_likelihood
                tokens += result.tokens
        return LossSums(loss, nll, tokens)

    def _microbatches(self, batches: list[Indices], epoch: int) -> list[Microbatch]:
        """Return this process's share, split where the objective asks for it."""
        return self.workers.equalize(
            [
                Microbatch(indices, batch.is_dummy)
                for batch in self.workers.shard(batches)
                for indices in self.data.microbatches(self.model, batch.indices, epoch)
            ]
        )
