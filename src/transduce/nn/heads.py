"""The heads of BERT: one vector for a whole text, and logits of masked tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.linear import Linear


class Pooler(nn.Module):
    """One vector per text: ``tanh(x W + b)`` of its first position, [CLS] (Devlin et al., 2019)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.dense = Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Pool a text: (batch, length, d_model) → (batch, d_model)."""
        return torch.tanh(self.dense(x[:, 0]))


class MaskedTokenHead(nn.Module):
    """The transform before the output layer, ``LayerNorm(GELU(x W + b))``, and the bias of its logits."""

    def __init__(self, vocabulary_size: int, d_model: int, *, eps: float = 1e-12) -> None:
        super().__init__()
        self.dense = Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, x: Tensor) -> Tensor:
        """Transform hidden states: (…, d_model) → the same shape."""
        y: Tensor = self.norm(F.gelu(self.dense(x)))
        return y
