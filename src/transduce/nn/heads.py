"""What stands on top of an encoder: one vector for a whole text, and guesses at what was masked."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.linear import Linear


class Pooler(nn.Module):
    """One vector for a text: ``tanh(x W + b)`` of its first position, [CLS] (Devlin et al., 2019)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.dense = Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) → (batch, d_model)."""
        return torch.tanh(self.dense(x[:, 0]))


class MaskedTokenHead(nn.Module):
    """Before the output layer: ``LayerNorm(GELU(x W + b))``; and what is added to its logits."""

    def __init__(self, vocabulary_size: int, d_model: int, *, eps: float = 1e-12) -> None:
        super().__init__()
        self.dense = Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, x: Tensor) -> Tensor:
        """(…, d_model) → (…, d_model)."""
        y: Tensor = self.norm(F.gelu(self.dense(x)))
        return y
