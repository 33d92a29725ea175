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
