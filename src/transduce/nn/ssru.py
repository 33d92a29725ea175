"""The Simpler Simple Recurrent Unit (Kim et al., 2019): a decoder's past in one vector instead of a cache."""

import torch
from torch import Tensor, nn

from transduce.nn.linear import Linear
from transduce.nn.state import KeyValue, KeyValueCache


class SSRU(nn.Module):
    """Mix each position with its past by a learned forget gate, in place of causal self-attention.

    ``f_t = sigmoid(x_t W_f + b_f)``, ``c_t = f_t · c_{t−1} + (1 − f_t) · x_t W``, ``y_t = max(0, c_t)``, with
    c_0 = 0. A step of decoding takes the same time at every position.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.forget = Linear(d_model, d_model)
        self.candidate = Linear(d_model, d_model, bias=False)

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
        gate = torch.sigmoid(self.forget(x))
        candidate = (1 - gate) * self.candidate(x)
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
