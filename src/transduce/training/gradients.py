"""The gradients of one training step, accumulated over its batches and summed over all processes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from transduce.models.protocol import Model
from transduce.training.distributed import Microbatch, WorkerGroup, exchange_gradients, is_sharded
from transduce.training.memory import add_up, split_batches
from transduce.training.objectives.objective import Indices, Objective
from transduce.training.precision import autocast


class LossSums(NamedTuple):
    """Sums over the tokens of a step."""

    loss: float  # what is minimized
    nll: float  # negative log-likelihood, without label smoothing
    tokens: float


class StepSums(NamedTuple):
    """Sums over the tokens of a step in all processes, and how many processes request something."""

    loss: float
    nll: float
    tokens: float
    stop: float
    late: float
    save: float


class FlatGradients:
    """The gradients of a model as views of one tensor, so that one collective sums them over processes."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        first = self._parameters[0]
        self.values = torch.zeros(sum(self._sizes), dtype=first.dtype, device=first.device)

    def clear(self) -> None:
        """Set all gradients to zero: backward passes add to them in place."""
        self.values.zero_()
        for parameter, values in zip(self._parameters, torch.split(self.values, self._sizes), strict=True):
            parameter.grad = values.view_as(parameter)


class GradientAccumulator:
    """Computes the gradients of batches, one microbatch after the other, and leaves them in the model."""

    def __init__(
        self,
        module: nn.Module,
        model: Model,
        data: Objective[Any],
        precision: str,
        workers: WorkerGroup,
    ) -> None:
        """Take the `LossModule` of ``model`` as `WorkerGroup.distribute` returned it."""
        self.module, self.model, self.data = module, model, data
        self.precision, self.workers = precision, workers
        self._is_sharded = is_sharded(model)
        self._flat = FlatGradients(model) if workers.size > 1 and not self._is_sharded else None

    @property
    def divisor(self) -> int:
        """The number by which the summed gradients are divided: FSDP averages them over processes."""
        return self.workers.size if self._is_sharded else 1

    def compute(
        self, batches: list[Indices], epoch: int, splits: int = 1, requests: Sequence[float] = (0.0, 0.0, 0.0)
    ) -> StepSums:
        """Compute the gradients of the summed loss, every batch in this many parts; return sums.

        ``requests`` tell what this process asks for: the last three fields of `StepSums`. If a part does not
        fit into the memory of a process, all processes raise a `BatchTooLargeError`.
        """
        parts = split_batches(self.workers.share(batches), splits)
        self._clear()
        sums = add_up(
            self.workers,
            parts,
            lambda: (*self._accumulate(self._microbatches(parts, batches[0][:1], epoch), epoch), *requests),
            count=len(StepSums._fields),
            can_split=not self._is_sharded,
        )
        if self._flat:
            self.workers.sum_in_place(self._flat.values)
        return StepSums(*sums)

    def _clear(self) -> None:
        if self._flat:
            self._flat.clear()
        else:
            self.model.zero_grad()

    def _microbatches(self, parts: list[Indices], dummy: Indices, epoch: int) -> list[Microbatch]:
        """Split parts where the objective asks for it; FSDP needs as many of them in every process."""
        share = [part for whole in parts for part in self.data.microbatches(self.model, whole, epoch)]
        return self.workers.equalize(share, dummy) if self._is_sharded else list(map(Microbatch, share))

    def _accumulate(self, microbatches: list[Microbatch], epoch: int) -> LossSums:
        """Add this process's share of the gradients to those in the model; return its share of the sums."""
        loss, nll, tokens = 0.0, 0.0, 0
        for number, microbatch in enumerate(microbatches, start=1):
            exchange_gradients(self.module, wanted=number == len(microbatches))
            with autocast(self.precision, self.workers.device):
                result = self.module(self.data, microbatch.indices, epoch)
            (result.smoothed * 0 if microbatch.is_dummy else result.smoothed).backward()
            if not microbatch.is_dummy:
                loss, nll = loss + result.smoothed.item(), nll + result.negative_log_likelihood
                tokens += result.tokens
        return LossSums(loss, nll, tokens)
