"""Token embeddings and the pre-softmax projection (section 3.4)."""

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F


class Embedding(nn.Module):
    """A matrix with one row per token, used for input embeddings and for the output projection.

    Input: the token's row × √d_model, or unscaled if not ``scaled``. Output: the inner product of a
    position with every row, as logits, plus a ``bias`` if there is one. Sharing weights means sharing this
    object. The row and the bias of a ``fixed`` token get no gradients, wherever they are used.

    Rows are initialised from N(0, 1/d_model). Scaled by √d_model, they have components of variance 1,
    next to positional encodings of variance ½; and against the decoder's normalised output the logits have
    variance 1, so that training starts close to a uniform distribution.
    """

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        *,
        scaled: bool = True,
        bias: bool = False,
        fixed: int | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if bias else None
        self.fixed = fixed
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed tokens: (batch, length) → (batch, length, d_model)."""
        # Despite its name, torch's argument does nothing but to stop the gradients of a row.
        rows = F.embedding(tokens, self.weight, padding_idx=self.fixed)
        return rows if self.scale == 1 else rows * self.scale

    def logits(self, x: Tensor) -> Tensor:
        """Project to the vocabulary: (…, d_model) → (…, vocabulary)."""
        weight, bias = self.projection()
        return F.linear(x, weight, bias)

    def projection(self) -> tuple[Tensor, Tensor | None]:
        """Return the matrix of `logits`, (vocabulary, d_model), and its bias, (vocabulary,), for training."""
        if self.fixed is None or not torch.is_grad_enabled():
            return self.weight, self.bias
        weight: Tensor = _WithFixedRow.apply(self.weight, self.fixed)  # type: ignore[no-untyped-call]
        bias = None if self.bias is None else _WithFixedRow.apply(self.bias, self.fixed)  # type: ignore[no-untyped-call]
        return weight, bias


class _WithFixedRow(torch.autograd.Function):
    """The identity, but for the gradient of one row, which is zero."""

    @staticmethod
    def forward(ctx: FunctionCtx, tensor: Tensor, row: int) -> Tensor:
        ctx.row = row  # type: ignore[attr-defined]
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone()
        gradient[ctx.row] = 0  # type: ignore[attr-defined]
        return gradient, None
