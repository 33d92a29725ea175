"""Attention (section 3.2): the equation, its fast path, its alternatives, and many heads of it.

Shapes: query (…, query, d_k), key (…, key, d_k), value (…, key, d_v); a mask broadcasts against
(…, query, key) and is ``True`` where a query may attend to a key. A query that may attend to
nothing gets zeros.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.engine import kernels
from transduce.engine.unpadding import Unpadded
from transduce.nn.dropout import Dropout
from transduce.nn.linear import FusedLinear, Linear
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValue, KeyValueCache

FEW = 8  # queries


class Attended(NamedTuple):
    """What attention gives: the values, mixed, and in what proportions."""

    values: Tensor  # (…, query, d_v)
    weights: Tensor  # (…, query, key)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the keys that may be seen; a row with none of them is all zeros."""
    if mask is None:
        return scores.softmax(dim=-1)
    _check(mask)
    # The lowest finite value instead of −∞: a row of nothing but −∞ would be NaN, in the gradient too.
    lowest, hidden = torch.finfo(scores.dtype).min, ~mask
    return scores.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)


def _check(mask: Tensor) -> None:
    """The kernel would add a mask of numbers to the scores."""
    if mask.dtype != torch.bool:
        raise TypeError(f"a mask is True where a query may attend, not {mask.dtype}")


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Attended:
    """``softmax(QKᵀ/√d_k) V`` (equation 1), as written. `fast_attention` is tested against it."""
    weights = attention_weights(query, key, mask, scale=scale)
    return Attended(weights @ value, weights)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    """``softmax(QKᵀ/√d_k)``: (…, query, key)."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return masked_softmax(query @ key.transpose(-2, -1) * scale, mask)


def dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
    """Multiplicative attention without the scale: ``softmax(QKᵀ) V`` (section 3.2.1)."""
    return scaled_dot_product_attention(query, key, value, mask, scale=1.0)


def fast_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    """The values of `scaled_dot_product_attention`, from torch's fused kernel, which holds no weights."""
    if mask is not None:
        _check(mask)
    # torch's kernel broadcasts a mask of keys alone only if it has a dimension for queries too
    mask = mask[None] if mask is not None and mask.dim() == 1 else mask
    if torch.is_autocast_enabled("cpu") and query.device.type == "cpu":
        # The kernel's backward pass is many times slower in bfloat16 than in float32 on CPUs.
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(
                query.float(), key.float(), value.float(), attn_mask=mask, scale=scale
            )
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def _few(query: Tensor) -> bool:
    """Whether the queries are so few that on the CPU the equation is faster than the kernel.

    So they are in decoding: one for each target under way.
    """
    return query.device.type == "cpu" and query.size(-2) <= FEW and not torch.is_grad_enabled()


class AdditiveAttention(nn.Module):
    """Attention scored by a small network: ``vᵀ tanh(q W_q + k W_k)`` (Bahdanau et al., 2015)."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query = Linear(d_query, d_hidden)
        self.key = Linear(d_key, d_hidden, bias=False)  # one bias inside the tanh is enough
        self.score = Linear(d_hidden, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """Mix the values (…, key, d_v) for each query."""
        return self.attend(query, self.keys(key), value, mask)

    def keys(self, key: Tensor) -> Tensor:
        """What of the keys (…, key, d_key) does not depend on the query: once a sentence."""
        projected: Tensor = self.key(key)
        return projected

    def attend(self, query: Tensor, keys: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """The same as `forward`, with `keys` made beforehand."""
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
        return self.attend(query, self.keys(key), value, mask)

    def keys(self, key: Tensor) -> Tensor:
        """``W k``: what of the keys does not depend on the query."""
        projected: Tensor = self.key(key)
        return projected

    def attend(self, query: Tensor, keys: Tensor, value: Tensor, mask: Tensor | None = None) -> Attended:
        """The same as `forward`, with `keys` made beforehand."""
        return dot_product_attention(query, keys, value, mask)


class MultiHeadAttention(nn.Module):
    """``Concat(head_1 … head_h) W^O`` (section 3.2.2): what its two uses below share.

    d_k and d_v are free (Table 3, rows A and B); by default both are d_model / heads.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if (d_k is None or d_v is None) and d_model % heads:
            raise ValueError(f"d_model {d_model} does not divide into {heads} heads: give d_k and d_v")
        self.heads = heads
        self.d_k = d_k or d_model // heads
        self.d_v = d_v or d_model // heads
        self.dropout = Dropout(dropout)
        self.output = Linear(heads * self.d_v, d_model)

    def split(self, x: Tensor) -> Tensor:
        """(batch, length, heads·d) → (batch, heads, length, d)."""
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, record: list[Tensor] | None
    ) -> Tensor:
        """All heads at once: (batch, heads, query, d_k) → (batch, query, d_model).

        The weights, (batch, heads, query, key), are appended to ``record`` if there is one.
        """
        return self.join(self.mix(query, key, value, mask, record))

    def mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, record: list[Tensor] | None
    ) -> Tensor:
        """The same, but the heads stay apart: (batch, heads, query, d_v)."""
        drops = self.training and self.dropout.p > 0
        if record is None and not drops and not _few(query):
            return fast_attention(query, key, value, mask)
        if record is None and not drops and kernels.can_attend(query, key, value, mask):
            return kernels.attend(query, key, value, mask)
        weights = attention_weights(query, key, mask)
        if record is not None:
            record.append(weights)
        mixed: Tensor = self.dropout(weights) @ value
        return mixed

    def join(self, values: Tensor) -> Tensor:
        """``Concat(head_1 … head_h) W^O``: (batch, heads, query, d_v) → (batch, query, d_model)."""
        joined: Tensor = self.output(values.transpose(1, 2).flatten(-2))
        return joined


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from one sequence; W^Q, W^K and W^V in one product."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout)
        self.widths = [heads * self.d_k, heads * self.d_k, heads * self.d_v]
        self.query_key_value = FusedLinear(d_model, self.widths, bias=qkv_bias)
        self.rotary = rotary

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """(batch, length, d_model) → the same; with a cache, x continues what the cache holds."""
        query, key, value = self.project(x, 0 if cache is None else cache.length)
        if cache is not None:
            key, value = cache.append(KeyValue(key, value))
        return self.attend(query, key, value, mask, record)

    def unpadded(self, x: Tensor, mask: Tensor | None, tokens: Unpadded) -> Tensor:
        """The same of the real tokens of a batch, (1, tokens, d_model)."""
        query, key, value = self._apart(tokens.put_back(self.query_key_value(x)))
        mixed = self.mix(query, key, value, mask, None).transpose(1, 2).flatten(-2)
        joined: Tensor = self.output(tokens.take(mixed))
        return joined

    def project(self, x: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values of x, whose first position is ``start``: (batch, heads, length, d) each."""
        return self._apart(self.query_key_value(x), start)

    def _apart(self, projected: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        parts = torch.split(projected, self.widths, dim=-1)
        query, key, value = (self.split(part) for part in parts)
        if self.rotary is not None:
            query, key = self.rotary(query, start), self.rotary(key, start)
        return query, key, value


class EncoderDecoderAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder; W^K and W^V in one product."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout)
        self.query = Linear(d_model, heads * self.d_k)
        self.widths = [heads * self.d_k, heads * self.d_v]
        self.key_value = FusedLinear(d_model, self.widths)

    def keys_values(self, memory: Tensor) -> KeyValue:
        """The encoder's output (batch, source, d_model), ready to be attended to: once a sentence."""
        key, value = torch.split(self.key_value(memory), self.widths, dim=-1)
        return KeyValue(self.split(key), self.split(value))

    def forward(
        self,
        x: Tensor,
        memory: KeyValue,
        mask: Tensor | None = None,
        *,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """(batch, target, d_model) → the same, with what it found in the source."""
        return self.attend(self.split(self.query(x)), memory.key, memory.value, mask, record)
