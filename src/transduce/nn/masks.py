"""Masks: ``True`` means *may attend*, everywhere (sections 3.1 and 3.2.3).

A mask broadcasts against attention scores of shape (batch, heads, query, key); two masks
are combined with ``&``.
"""

import torch
from torch import Tensor


def padding_mask(tokens: Tensor, pad: int) -> Tensor:
    """Hide padding from every query: tokens (batch, key) → (batch, 1, 1, key)."""
    return (tokens != pad)[:, None, None, :]


def causal_mask(length: int, *, device: torch.device | None = None) -> Tensor:
    """Let position i see itself and what came before: (query, key), lower triangle ``True``."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def key_mask(mask: Tensor | None) -> Tensor | None:
    """A mask that is the same for all heads and queries, (batch, 1, 1, key), as (batch, key).

    Attention to a part of the keys has no use for another one, which would be as large as what it saves.
    """
    if mask is None:
        return None
    if mask.dim() != 4 or mask.shape[1:3] != (1, 1) or mask.dtype != torch.bool:
        raise ValueError(
            f"a mask of keys is needed, (batch, 1, 1, key), not {tuple(mask.shape)} of {mask.dtype}"
        )
    return mask[:, 0, 0]
