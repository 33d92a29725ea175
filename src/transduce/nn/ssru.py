"""The Simpler Simple Recurrent Unit (Kim et al., 2019): a decoder's past in one vector instead of a cache."""

import torch
from torch import Tensor, nn

from transduce.nn.linear import FusedLinear
from transduce.nn.state import KeyValue, KeyValueCache


class SSRU(nn.Module):
    """Mix each position with its past by a learned forget gate, in place of causal self-attention.

    ``f_t = sigmoid(x_t W_f + b_f)``, ``c_t = f_t · c_{t−1} + (1 − f_t) · x_t W``, ``y_t = max(0, c_t)``, with
    c_0 = 0. A step of decoding takes the same time at every position. W_f and W are one matrix product.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.forget_candidate = FusedLinear(d_model, [d_model, d_model], bias=False)
        self.forget_bias = nn.Parameter(torch.zeros(d_model))

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Mix the positions of x, (batch, length, d_model), with their past → the same shape.

        The arguments are those of `SelfAttention.forward`: padding needs no mask, because it comes last, and
        ``record`` receives nothing, because there are no weights. The cache holds the states c.
        """
        gate, candidate = self.gates(x)
        state = torch.zeros_like(x[:, 0])
        if cache is not None and cache.length:
            state = cache.filled().key[:, 0, -1]
        states = []
        for position in range(x.size(1)):
            state = gate[:, position] * state + candidate[:, position]
            states.append(state)
        mixed = torch.stack(states, dim=1) if states else x
        if cache is not None:
            held = mixed[:, None]  # one head
            cache.append(KeyValue(held, held[..., :0]))
        return torch.relu(mixed)

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return f and (1 − f) · x W of every position: (batch, length, d_model) each."""
        forget, candidate = self.forget_candidate(x).chunk(2, dim=-1)
        gate = torch.sigmoid(forget + self.forget_bias)
        return gate, (1 - gate) * candidate
