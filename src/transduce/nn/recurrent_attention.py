"""Attention of a recurrent decoder to its source, scored by a network or by a product.

Shapes: query (…, query, d_query), key (…, key, d_key), value (…, key, d_v); a mask is as in
`transduce.nn.attention`.
"""

import torch
from torch import Tensor, nn

from transduce.nn.attention import Attended, dot_product_attention, masked_softmax
from transduce.nn.linear import Linear


class AdditiveAttention(nn.Module):
    """Attention scored by a small network: ``vᵀ tanh(q W_q + k W_k)`` (Bahdanau et al., 2015)."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query = Linear(d_query, d_hidden)
        self.key = Linear(d_key, d_hidden, bias=False)  # one bias inside the tanh is enough
        self.score = Linear(d_hidden, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """Mix the values (…, key, d_v) for each query."""
        return self.attend(query, self.project_keys(key), value, mask)

    def project_keys(self, key: Tensor) -> Tensor:
        """Compute ``k W_k``, which is independent of the query: once per source sentence."""
        projected: Tensor = self.key(key)
        return projected

    def attend(self, query: Tensor, keys: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """Compute `forward` for keys that `project_keys` has projected."""
        hidden = torch.tanh(self.query(query).unsqueeze(-2) + keys.unsqueeze(-3))
        weights = masked_softmax(self.score(hidden).squeeze(-1), mask)  # (…, query, key)
        return Attended(weights @ value, weights)


class MultiplicativeAttention(nn.Module):
    """Attention scored by a product: ``q W k`` (Luong et al., 2015, "general")."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.key = Linear(d_key, d_query, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """Mix the values (…, key, d_v) for each query."""
        return self.attend(query, self.project_keys(key), value, mask)

    def project_keys(self, key: Tensor) -> Tensor:
        """Compute ``W k``, which is independent of the query: once per source sentence."""
        projected: Tensor = self.key(key)
        return projected

    def attend(self, query: Tensor, keys: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """Compute `forward` for keys that `project_keys` has projected."""
        return dot_product_attention(query, keys, value, mask)
