"""Self-attention restricted to a neighbourhood (section 4, the last row of Table 1)."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import Attended, masked_softmax


def restricted_attention(query: Tensor, key: Tensor, value: Tensor, radius: int) -> Attended:
    """Every position attends to itself and to ``radius`` positions on either side, and computes no more.

    Query and key (…, length, d_k), value (…, length, d_v) → values (…, length, d_v) and weights
    (…, length, 2·radius + 1), whose middle column is the position itself.
    """
    length, window = query.size(-2), 2 * radius + 1
    scale = 1 / math.sqrt(query.size(-1))
    near_keys = F.pad(key, (0, 0, radius, radius)).unfold(-2, window, 1)  # (…, length, d_k, window)
    near_values = F.pad(value, (0, 0, radius, radius)).unfold(-2, window, 1).transpose(-2, -1)
    scores = (query.unsqueeze(-2) @ near_keys).squeeze(-2) * scale  # (…, length, window)
    positions = torch.arange(length, device=query.device)[:, None]
    neighbours = positions + torch.arange(-radius, radius + 1, device=query.device)
    weights = masked_softmax(scores, (neighbours >= 0) & (neighbours < length))
    return Attended((weights.unsqueeze(-2) @ near_values).squeeze(-2), weights)
