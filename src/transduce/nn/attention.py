"""Scaled dot-product attention (section 3.2.1, equation 1), as written and through torch's fused kernel.

Shapes: query (…, query, d_k), key (…, key, d_k), value (…, key, d_v). A mask broadcasts against
(…, query, key) and is ``True`` where a query may attend to a key. A query that may attend to no key
gets zeros.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Attended(NamedTuple):
    """The output of attention and the weights it was mixed with."""

    values: Tensor  # (…, query, d_v)
    weights: Tensor  # (…, query, key)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Attended:
    """Compute ``softmax(QKᵀ/√d_k) V`` (equation 1) as written: the oracle of `fast_attention`."""
    weights = attention_weights(query, key, mask, scale=scale)
    return Attended(weights @ value, weights)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    """Compute ``softmax(QKᵀ/√d_k)``: (…, query, key)."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return masked_softmax(query @ key.transpose(-2, -1) * scale, mask)


def dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
    """Compute multiplicative attention without the scale: ``softmax(QKᵀ) V`` (section 3.2.1)."""
    return scaled_dot_product_attention(query, key, value, mask, scale=1.0)


def fast_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    """Compute the values of `scaled_dot_product_attention` with torch's fused kernel, without the weights."""
    if mask is not None:
        _require_boolean(mask)
    # torch's kernel broadcasts a mask over keys only if it has a query dimension, too.
    mask = mask[None] if mask is not None and mask.dim() == 1 else mask
    if torch.is_autocast_enabled("cpu") and query.device.type == "cpu":
        # On CPUs the kernel's backward pass is many times slower in bfloat16 than in float32.
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(
                query.float(), key.float(), value.float(), attn_mask=mask, scale=scale
            )
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Apply the softmax over the keys that the mask allows; a row without any allowed key is all zeros."""
    if mask is None:
        return scores.softmax(dim=-1)
    _require_boolean(mask)
    # The lowest finite value instead of −∞: a row of −∞ alone would be NaN, in the gradient as well.
    lowest, hidden = torch.finfo(scores.dtype).min, ~mask
    return scores.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)


def _require_boolean(mask: Tensor) -> None:
    """Refuse numeric masks: torch's kernel would add them to the scores."""
    if mask.dtype != torch.bool:
        raise TypeError(f"an attention mask must be boolean (True: may attend), not {mask.dtype}")
