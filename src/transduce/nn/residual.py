"""Residual connection, dropout and layer normalisation around a sub-layer (sections 3.1 and 5.4)."""

from collections.abc import Callable
from typing import Literal, Protocol

from torch import Tensor, nn

from transduce.nn.dropout import Dropout

Norm = Literal["post", "pre"]
Normalization = Literal["layer", "rms"]


def normalization(
    d_model: int, *, kind: Normalization = "layer", eps: float = 1e-5, bias: bool = True
) -> nn.LayerNorm | nn.RMSNorm:
    """Return a layer norm, or one that only divides by the root mean square (Zhang and Sennrich, 2019)."""
    if kind == "rms":
        return nn.RMSNorm(d_model, eps=eps)
    return nn.LayerNorm(d_model, eps=eps, bias=bias)


class ResidualKernel(Protocol):
    """A faster way to compute a residual connection in training; see `transduce.engine.training`."""

    def takes(self, x: Tensor) -> bool:
        """Return whether it can compute with x."""
        ...

    def __call__(self, residual: "Residual", x: Tensor, update: Tensor) -> Tensor:
        """Return ``x + Dropout(update)``, normalised if the norm comes after it."""
        ...


class Residual(nn.Module):
    """The residual connection around every sub-layer of the encoder and the decoder.

    - ``"post"``, as in the paper: ``LayerNorm(x + Dropout(Sublayer(x)))``
    - ``"pre"``, as in most later models: ``x + Dropout(Sublayer(LayerNorm(x)))``; a stack of these needs
      one more norm at its end.
    """

    def __init__(
        self,
        d_model: int,
        *,
        norm: Norm = "post",
        dropout: float = 0.0,
        eps: float = 1e-5,
        bias: bool = True,
        kind: Normalization = "layer",
    ) -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.norm = normalization(d_model, kind=kind, eps=eps, bias=bias)
        self.dropout = Dropout(dropout)
        self.fused: ResidualKernel | None = None

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sub-layer to x, (batch, length, d_model) → the same shape."""
        if self.fused and self.training and self.fused.takes(x):
            return self.fused(self, x, sublayer(self.norm(x) if self.pre else x))
        if self.pre:
            y: Tensor = self.dropout.add(x, sublayer(self.norm(x)))
        else:
            y = self.norm(self.dropout.add(x, sublayer(x)))
        return y
