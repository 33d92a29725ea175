"""Averages of weights: of the last checkpoints (section 6.1), or a moving one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transduce.training.checkpoint import MODEL
from transduce.training.distributed import assign_all


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """The mean weights of several checkpoints, summed in float64."""
    sums: dict[str, Tensor] = {}
    for path in paths:
        weights = load_file(path / MODEL)
        for name, tensor in weights.items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / len(paths)).to(weights[name].dtype) for name, total in sums.items()}


class MovingAverage:
    """An exponential moving average of a model's weights.

    In the first steps the decay is lower, (1 + step) / (10 + step): the weights that training
    started from have no say for long.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """After a step."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), [p.detach() for p in model.parameters()], share)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model has the averaged weights for a while."""
        own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        assign_all(model, self.weights)
        try:
            yield
        finally:
            assign_all(model, own)
