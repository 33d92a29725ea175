"""Token embeddings and the pre-softmax projection (section 3.4)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embedding(nn.Module):
    """A matrix with one row per token, used for input embeddings and for the output projection.

    Input: the token's row × √d_model, or unscaled if not ``scaled``. Output: the inner product of a
    position with every row, as logits, plus a ``bias`` if there is one. Sharing weights means sharing this
    object.

    Rows are initialised from N(0, 1/d_model). Scaled by √d_model, they have components of variance 1,
    next to positional encodings of variance ½; and against the decoder's normalised output the logits have
    variance 1, so that training starts close to a uniform distribution.
    """

    def __init__(
        self, vocabulary_size: int, d_model: int, *, scaled: bool = True, bias: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if bias else None
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed tokens: (batch, length) → (batch, length, d_model)."""
        rows = F.embedding(tokens, self.weight)
        return rows if self.scale == 1 else rows * self.scale

    def logits(self, x: Tensor) -> Tensor:
        """Project to the vocabulary: (…, d_model) → (…, vocabulary)."""
        return F.linear(x, self.weight, self.bias)
