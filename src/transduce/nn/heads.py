"""The heads of BERT: one vector for a whole text, and logits of masked tokens."""

from typing import Literal

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


TokenPooling = Literal["mean", "cls", "max", "mean_sqrt_len"]


def pool_tokens(states: Tensor, is_token: Tensor, how: TokenPooling) -> Tensor:
    """Pool the states of texts, (batch, length, d_model), into one vector each, (batch, d_model).

    ``is_token`` (batch, length) is ``False`` for padding. The vector is the mean over the tokens, the state
    of the first one, the maximum in each dimension, or the sum divided by the square root of the length.
    """
    if how == "cls":
        return states[:, 0]
    mask = is_token[:, :, None]
    if how == "max":
        return states.masked_fill(~mask, -torch.inf).amax(dim=1)
    count = mask.sum(dim=1)
    return (states * mask).sum(dim=1) / (count if how == "mean" else count.sqrt())


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
