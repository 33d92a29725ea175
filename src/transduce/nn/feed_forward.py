"""Position-wise feed-forward network (section 3.3, equation 2)."""

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.dropout import Dropout
from transduce.nn.linear import FusedLinear, Linear

Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu"]

# ReLU in place: its input is not needed for the gradient.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
}
_GATES: dict[str, Callable[[Tensor], Tensor]] = {"swiglu": F.silu, "geglu": F.gelu}


class FeedForwardKernel(Protocol):
    """A faster way to train a feed-forward network with ReLU; see `transduce.engine.training`."""

    def takes(self, x: Tensor) -> bool:
        """Return whether it can compute with x."""
        ...

    def __call__(self, feed_forward: "FeedForward", x: Tensor) -> Tensor:
        """Transform x, (positions, d_model) → the same shape."""
        ...


class FeedForward(nn.Module):
    """``max(0, x W1 + b1) W2 + b2``: the same for every position, different in every layer.

    ``activation`` replaces the ReLU by GELU, exact or in the tanh form of GPT-2; by swish, ``x · sigmoid(x)``
    (Ramachandran et al., 2017); or by the gated SwiGLU (Shazeer, 2020), ``(swish(x W_gate) · x W_up) W2``,
    with one more matrix for the same d_ff, or GEGLU, which has GELU in place of swish.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = activation
        gated = activation in _GATES
        self.inner: nn.Linear = (
            FusedLinear(d_model, [d_ff, d_ff], bias=bias) if gated else Linear(d_model, d_ff, bias=bias)
        )
        self.outer = Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        self.fused: FeedForwardKernel | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position: (batch, length, d_model) → the same shape."""
        # In two dimensions: for more, a linear layer returns a view, which the in-place ReLU would copy.
        rows = x.flatten(0, -2)
        is_plain = self.training and self.activation == "relu" and not self.dropout.p
        if self.fused and is_plain and self.fused.takes(rows):
            return self.fused(self, rows).view_as(x)
        y: Tensor = self.outer(self.dropout(self._activate(rows)))
        return y.view_as(x)

    def _activate(self, x: Tensor) -> Tensor:
        if self.activation in _GATES:
            gate, up = self.inner(x).chunk(2, dim=-1)
            active: Tensor = _GATES[self.activation](gate) * up
        else:
            active = _ACTIVATIONS[self.activation](self.inner(x))
        return active
