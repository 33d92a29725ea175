"""Multi-head attention (section 3.2.2) and its uses in the Transformer (section 3.2.3).

Every kind of self-attention follows one contract, `SelfAttention`: the layers of a stack call
``forward(x, key_mask, cache=…, record=…)`` and know no more. Causality, windows or hashing are
constructor arguments of the kind.
"""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from transduce.nn.attention import attention_weights, fast_attention
from transduce.nn.dropout import Dropout
from transduce.nn.linear import FusedLinear, Linear
from transduce.nn.masks import causal_mask, check_key_mask, lengths_of
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValue, KeyValueCache

FEW_QUERIES = 8  # up to here the plain equation is faster than torch's fused kernel on CPUs


class AttentionKernel(Protocol):
    """A faster way to attend in training; see `transduce.engine.training`."""

    def takes(self, query: Tensor, keys: int) -> bool:
        """Return whether it can attend with queries (batch, query, width) to this many keys."""
        ...

    def __call__(
        self,
        attention: "MultiHeadAttention",
        query: Tensor,
        key_value: Tensor | None,
        lengths: tuple[Tensor, Tensor],
        *,
        causal: bool,
    ) -> Tensor:
        """Attend with all heads; see `transduce.engine.training.FusedAttention`."""
        ...


class MultiHeadAttention(nn.Module):
    """``Concat(head_1 … head_h) W^O``: the part that self-attention and encoder-decoder attention share.

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
        bias: bool = True,
    ) -> None:
        super().__init__()
        if (d_k is None or d_v is None) and d_model % heads:
            raise ValueError(f"d_model {d_model} is not divisible by {heads} heads: give d_k and d_v")
        self.heads = heads
        self.d_k = d_k or d_model // heads
        self.d_v = d_v or d_model // heads
        self.dropout = Dropout(dropout)
        self.output = Linear(heads * self.d_v, d_model, bias=bias)
        self.fused: AttentionKernel | None = None

    def kernel_for(
        self, x: Tensor, keys: int, key_mask: Tensor | None, record: list[Tensor] | None
    ) -> "tuple[AttentionKernel, Tensor] | None":
        """Return a faster way to attend from x, (batch, query, d_model), and the number of keys of each row.

        ``None`` where there is none: in inference, with dropout of weights, and if padding is not last.
        """
        if self.fused is None or not self.training or record is not None or self.dropout.p:
            return None
        check_key_mask(key_mask, len(x), keys)
        lengths = full_lengths(len(x), keys) if key_mask is None else lengths_of(key_mask)
        return (self.fused, lengths) if lengths is not None and self.fused.takes(x, keys) else None

    def split_heads(self, x: Tensor, heads: int | None = None) -> Tensor:
        """(batch, length, heads·d) → (batch, heads, length, d)."""
        batch, length, width = x.shape
        heads = heads or self.heads
        return x.view(batch, length, heads, width // heads).transpose(1, 2)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, record: list[Tensor] | None
    ) -> Tensor:
        """Attend with all heads: query (batch, heads, query, d_k) → (batch, heads, query, d_v).

        The weights, (batch, heads, query, key), are appended to ``record`` if it is given.
        """
        drops = self.training and self.dropout.p > 0
        if record is None and not drops and not _has_few_queries(query):
            return fast_attention(query, key, value, mask)
        weights = attention_weights(query, key, mask)
        if record is not None:
            record.append(weights)
        mixed: Tensor = self.dropout(weights) @ value
        return mixed

    def join_heads(self, values: Tensor) -> Tensor:
        """``Concat(head_1 … head_h) W^O``: (batch, heads, query, d_v) → (batch, query, d_model)."""
        return self.mapped(values.transpose(1, 2).flatten(-2))

    def mapped(self, joined: Tensor) -> Tensor:
        """Apply W^O: (batch, query, heads · d_v) → (batch, query, d_model)."""
        mapped: Tensor = self.output(joined)
        return mapped


def full_lengths(batch: int, length: int) -> Tensor:
    """Return the lengths of rows that have no padding: (batch,)."""
    return torch.full((batch,), length, dtype=torch.int32)


def _has_few_queries(query: Tensor) -> bool:
    """Whether this is a decoding step on a CPU: one query per hypothesis."""
    return query.device.type == "cpu" and query.size(-2) <= FEW_QUERIES and not torch.is_grad_enabled()


class SelfAttention(MultiHeadAttention, ABC):
    """Queries, keys and values from one sequence: the contract of every kind of self-attention."""

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Let the positions of x, (batch, length, d_model), attend to one another → the same shape.

        ``key_mask`` (batch, keys) is ``True`` for keys that may be attended to. With a ``cache``, x
        continues the positions that the cache holds, and the keys are all of them. ``record`` receives
        the weights, (batch, heads, length, keys).
        """


class ProjectedSelfAttention(SelfAttention, ABC):
    """Self-attention whose W^Q, W^K and W^V are one matrix product.

    With fewer ``key_value_heads`` than heads, groups of heads share their keys and values (Ainslie et al.,
    2023). ``qkv_bias`` is ``bias`` unless it is given.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
        qkv_bias: bool | None = None,
        bias: bool = True,
        key_value_heads: int | None = None,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.key_value_heads = key_value_heads or heads
        if heads % self.key_value_heads:
            raise ValueError(f"{heads} heads cannot share {self.key_value_heads} heads of keys and values")
        self.widths = [heads * self.d_k, self.key_value_heads * self.d_k, self.key_value_heads * self.d_v]
        self.query_key_value = FusedLinear(d_model, self.widths, bias=bias if qkv_bias is None else qkv_bias)
        self.rotary = rotary

    @property
    def is_grouped(self) -> bool:
        """Whether several heads share their keys and values."""
        return self.key_value_heads < self.heads

    def project(self, x: Tensor, start: int | Tensor = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Project x, whose first position is ``start``: queries, keys, values, (batch, heads, length, d).

        ``start`` may be (batch,), one for each row of x; see `RotaryPositions`.
        """
        parts = torch.split(self.query_key_value(x), self.widths, dim=-1)
        query = self.split_heads(parts[0])
        key, value = (self.split_heads(part, self.key_value_heads) for part in parts[1:])
        if self.rotary is not None:
            query, key = self.rotary(query, start), self.rotary(key, start)
        return query, key, value


class FullSelfAttention(ProjectedSelfAttention):
    """The paper's self-attention: to all positions, or to a position itself and its past (causal)."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        causal: bool = False,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
        qkv_bias: bool | None = None,
        bias: bool = True,
        key_value_heads: int | None = None,
    ) -> None:
        super().__init__(
            d_model,
            heads,
            d_k=d_k,
            d_v=d_v,
            dropout=dropout,
            rotary=rotary,
            qkv_bias=qkv_bias,
            bias=bias,
            key_value_heads=key_value_heads,
        )
        self.causal = causal

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend as `SelfAttention.forward` says."""
        is_plain = cache is None and self.rotary is None and not self.is_grouped
        found = self.kernel_for(x, x.size(1), key_mask, record) if is_plain else None
        if found:
            kernel, lengths = found
            mixed = kernel(self, self.query_key_value(x), None, (lengths, lengths), causal=self.causal)
            return self.mapped(mixed)
        start = 0 if cache is None else cache.length
        query, key, value = self.project(x, 0 if cache is None else cache.next_position)
        if cache is not None:
            key, value = cache.append(KeyValue(key, value))
        key, value = (self.for_every_head(part) for part in (key, value))
        check_key_mask(key_mask, len(x), key.size(2))
        mask = None if key_mask is None else key_mask[:, None, None]  # (batch, heads, query, key)
        if self.causal and (cache is None or x.size(1) > 1):  # a single new position is the last one
            past = causal_mask(key.size(2), device=x.device)[start:]
            mask = past if mask is None else past & mask
        return self.join_heads(self.attend(query, key, value, mask, record))

    def for_every_head(self, part: Tensor) -> Tensor:
        """Repeat keys or values, (batch, key_value_heads, length, d) → (batch, heads, length, d)."""
        if not self.is_grouped:
            return part
        return part.repeat_interleave(self.heads // self.key_value_heads, dim=1)


class EncoderDecoderAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder; W^K and W^V are one matrix product."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout, bias=bias)
        self.query = Linear(d_model, heads * self.d_k, bias=bias)
        self.widths = [heads * self.d_k, heads * self.d_v]
        self.key_value = FusedLinear(d_model, self.widths, bias=bias)

    def keys_values(self, memory: Tensor) -> KeyValue:
        """Project the encoder's output, (batch, source, d_model), once per source sentence."""
        return self._split(memory)

    def _split(self, memory: Tensor) -> KeyValue:
        key, value = torch.split(self.key_value(memory), self.widths, dim=-1)
        return KeyValue(self.split_heads(key), self.split_heads(value))

    def forward(
        self,
        x: Tensor,
        memory: KeyValue | Tensor,
        key_mask: Tensor | None = None,
        *,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Let x, (batch, target, d_model), attend to the source → the same shape.

        ``memory`` is the encoder's output, (batch, source, d_model), or its `keys_values`. ``key_mask``
        (batch, source) is ``True`` for source tokens that may be attended to; ``record`` receives the
        weights, (batch, heads, target, source).
        """
        if isinstance(memory, Tensor):
            found = self.kernel_for(x, memory.size(1), key_mask, record)
            if found:
                kernel, lengths = found
                queries = full_lengths(len(x), x.size(1))
                return self.mapped(
                    kernel(self, self.query(x), self.key_value(memory), (queries, lengths), causal=False)
                )
            memory = self._split(memory)
        check_key_mask(key_mask, len(x), memory.key.size(2))
        mask = None if key_mask is None else key_mask[:, None, None]
        query = self.split_heads(self.query(x))
        return self.join_heads(self.attend(query, memory.key, memory.value, mask, record))
