"""Self-attention to k mixtures of the positions instead of all positions (Linformer: Wang et al., 2020)."""

import torch
from torch import Tensor, nn

from transduce.nn.masks import check_key_mask
from transduce.nn.multi_head_attention import ProjectedSelfAttention
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValueCache


class LowRankSelfAttention(ProjectedSelfAttention):
    """``softmax(Q(EK)ᵀ/√d_k) FV``, with E and F learned, (rank, max_length), and shared by all heads.

    A sequence of n positions uses the first n columns of both. Every mixture includes later positions:
    there is no causal form, and a decoder needs another kind of self-attention.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        rank: int,
        max_length: int,
        causal: bool = False,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        if causal:
            raise ValueError("low-rank attention mixes all positions and cannot be causal")
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout, rotary=rotary)
        self.key_projection = nn.Parameter(torch.empty(rank, max_length))  # E
        self.value_projection = nn.Parameter(torch.empty(rank, max_length))  # F
        for projection in (self.key_projection, self.value_projection):
            nn.init.xavier_uniform_(projection)

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend as `SelfAttention.forward` says, without a cache.

        ``record`` receives `position_shares`, (batch, heads, length, length), because the weights
        themselves belong to mixtures.
        """
        if cache is not None:
            raise ValueError("low-rank attention mixes all positions and cannot use a cache")
        length, max_length = x.size(1), self.key_projection.size(1)
        if length > max_length:
            raise ValueError(f"the sequence has {length} positions, but max_length is {max_length}")
        check_key_mask(key_mask, *x.shape[:2])
        query, key, value = self.project(x)
        weights: list[Tensor] | None = None if record is None else []
        values = self.attend(query, *self.mix_positions(key, value, key_mask), None, weights)
        if record is not None and weights is not None:
            record.append(self.position_shares(weights[0], key_mask))
        return self.join_heads(values)

    def mix_positions(
        self, key: Tensor, value: Tensor, key_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute EK and FV: (batch, heads, length, d) → (batch, heads, rank, d)."""
        if key_mask is not None:
            hidden = ~key_mask[:, None, :, None]
            key, value = key.masked_fill(hidden, 0), value.masked_fill(hidden, 0)
        length = key.size(2)
        return self.key_projection[:, :length] @ key, self.value_projection[:, :length] @ value

    def position_shares(self, weights: Tensor, key_mask: Tensor | None) -> Tensor:
        """Return each position's share: |P F| with rows scaled to 1, where P is (batch, heads, query, rank).

        F has entries of both signs, so these are not softmax weights unless F is the identity.
        """
        shares = (weights @ self.value_projection[:, : weights.size(2)]).abs()
        if key_mask is not None:
            shares = shares.masked_fill(~key_mask[:, None, None], 0)
        return shares / shares.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(shares.dtype).tiny)
