"""Masks (sections 3.1 and 3.2.3): ``True`` means *may attend*, everywhere; masks combine with ``&``."""

import torch
from torch import Tensor


def padding_mask(tokens: Tensor, pad: int) -> Tensor:
    """Return a key mask that hides padding: (batch, key), ``True`` where a token is not padding."""
    return tokens != pad


def lengths_of(key_mask: Tensor) -> Tensor | None:
    """Return the number of tokens of each row of a key mask, (batch,), or ``None`` if padding is not last."""
    lengths = key_mask.sum(dim=1)
    is_token = torch.arange(key_mask.size(1), device=key_mask.device) < lengths[:, None]
    return lengths if torch.equal(is_token, key_mask) else None


def check_key_mask(key_mask: Tensor | None, batch: int, keys: int) -> None:
    """Refuse a key mask that is not boolean and (batch, keys), such as one for pairs of positions."""
    if key_mask is not None and (key_mask.shape != (batch, keys) or key_mask.dtype != torch.bool):
        raise ValueError(
            f"a key mask must be boolean, ({batch}, {keys}), not {tuple(key_mask.shape)} of {key_mask.dtype}"
        )


def causal_mask(length: int, *, device: torch.device | None = None) -> Tensor:
    """Let position i attend to itself and to earlier positions: (query, key), lower triangle ``True``."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
