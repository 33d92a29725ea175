"""Self-attention to k mixtures of the positions instead of all of them (Linformer: Wang et al., 2020)."""

import torch
from torch import Tensor, nn

from transduce.nn.attention import SelfAttention
from transduce.nn.masks import key_mask
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValueCache


class LowRankSelfAttention(SelfAttention):
    """``softmax(Q(EK)ᵀ/√d_k) FV``, with E and F learned, (rank, max_length), and the same for all heads.

    A sequence of n positions uses the first n columns of both. Every mixture is of all positions, later
    ones too: there is no causal form, and a decoder needs another self-attention.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        rank: int,
        max_length: int,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout, rotary=rotary)
        self.key_projection = nn.Parameter(torch.empty(rank, max_length))  # E
        self.value_projection = nn.Parameter(torch.empty(rank, max_length))  # F
        for projection in (self.key_projection, self.value_projection):
            nn.init.xavier_uniform_(projection)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """(batch, length, d_model) and a mask (batch, 1, 1, length) → the same as x.

        What ``record`` receives is `shares`, (batch, heads, length, length): the weights are of mixtures.
        """
        if cache is not None:
            raise ValueError("low-rank attention mixes later positions into all: it cannot continue a cache")
        length, most = x.size(1), self.key_projection.size(1)
        if length > most:
            raise ValueError(f"{length} positions, but only {most} were learned (max_length)")
        seen = key_mask(mask)
        query, key, value = self.project(x)
        weights: list[Tensor] | None = None if record is None else []
        found = self.mix(query, *self.mixtures(key, value, seen), None, weights)
        if record is not None and weights is not None:
            record.append(self.shares(weights[0], seen))
        return self.join(found)

    def mixtures(self, key: Tensor, value: Tensor, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """EK and FV: (batch, heads, length, d) → (batch, heads, rank, d); ``seen`` (batch, length)."""
        if seen is not None:  # what is hidden has no part in any of them
            hidden = ~seen[:, None, :, None]
            key, value = key.masked_fill(hidden, 0), value.masked_fill(hidden, 0)
        length = key.size(2)
        return self.key_projection[:, :length] @ key, self.value_projection[:, :length] @ value

    def shares(self, weights: Tensor, seen: Tensor | None) -> Tensor:
        """How much of a value is in the result: |P F|, its rows scaled to 1; P (batch, heads, query, rank).

        F is of either sign, so that these are no weights of a softmax, but they are where F is the identity.
        """
        parts = (weights @ self.value_projection[:, : weights.size(2)]).abs()
        if seen is not None:
            parts = parts.masked_fill(~seen[:, None, None], 0)
        return parts / parts.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(parts.dtype).tiny)
