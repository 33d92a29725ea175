"""Linear layers with the usual initialisation of Transformers: Xavier-uniform weights, zero biases."""

from collections.abc import Sequence

import torch
from torch import nn


class Linear(nn.Linear):
    """``x W + b``, initialised Xavier-uniform with a zero bias."""

    def reset_parameters(self) -> None:
        """Initialise the weights."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class FusedLinear(nn.Linear):
    """Several linear layers of one input as a single matrix product; the caller splits the output.

    Each part is initialised by itself: Xavier's bound depends on a matrix's shape, and the stacked
    matrix has another shape than its parts.
    """

    def __init__(self, d_in: int, d_outs: Sequence[int], *, bias: bool = True) -> None:
        self.d_outs = list(d_outs)
        super().__init__(d_in, sum(d_outs), bias=bias)

    def reset_parameters(self) -> None:
        """Initialise the weights, part by part."""
        for part in torch.split(self.weight, self.d_outs):
            nn.init.xavier_uniform_(part)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
