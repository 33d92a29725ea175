"""Masks (sections 3.1 and 3.2.3): ``True`` means *may attend*, everywhere; masks combine with ``&``."""

import torch
from torch import Tensor


def padding_mask(tokens: Tensor, pad: int) -> Tensor:
    """Return a key mask that hides padding: (batch, key), ``True`` where a token is not padding."""
    return tokens != pad


def check_key_mask(key_mask: Tensor | None, batch: int, keys: int) -> None:
    """Refuse a key mask that is not boolean and (batch, keys), such as one for pairs of positions."""
    if key_mask is not None and (key_mask.shape != (batch, keys) or key_mask.dtype != torch.bool):
        raise ValueError(
            f"a key mask must be boolean, ({batch}, {keys}), not {tuple(key_mask.shape)} of {key_mask.dtype}"
        )


def causal_mask(length: int, *, device: torch.device | None = None) -> Tensor:
    """Let position i attend to itself and to earlier positions: (query, key), lower triangle ``True``."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
