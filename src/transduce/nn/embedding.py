"""Token embeddings and the pre-softmax projection (section 3.4)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embedding(nn.Module):
    """A matrix with a row for every token, for the way in and for the way out.

    In: the token's row × √d_model, or as it is if not ``scaled``. Out: the inner product of a position
    with every row, as logits, with no activation and no bias. Sharing weights is sharing this object.

    Rows start as N(0, 1/d_model): scaled by √d_model they have components of variance 1, beside
    positions of variance ½; and against the decoder's normalised output the logits have variance 1,
    so that training starts close to a uniform guess.
    """

    def __init__(self, vocabulary_size: int, d_model: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        self.scale = math.sqrt(d_model) if scaled else 1.0
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) → (batch, length, d_model)."""
        rows = F.embedding(tokens, self.weight)
        return rows if self.scale == 1 else rows * self.scale

    def logits(self, x: Tensor) -> Tensor:
        """(…, d_model) → (…, vocabulary)."""
        return F.linear(x, self.weight)
