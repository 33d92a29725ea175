"""Self-attention restricted to a neighbourhood (section 4, the last row of Table 1).

A window of positions on either side; and, with global tokens, the first positions (Longformer: Beltagy et
al., 2020).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import Attended, SelfAttention, masked_softmax, scaled_dot_product_attention
from transduce.nn.masks import causal_mask, key_mask
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValue, KeyValueCache

SMALLEST_BLOCK = 32  # queries: products of smaller blocks take longer to start than to compute

Mix = Callable[[Tensor, Tensor, Tensor, Tensor | None, list[Tensor] | None], Tensor]


def restricted_attention(query: Tensor, key: Tensor, value: Tensor, radius: int) -> Attended:
    """Every position attends to itself and to ``radius`` positions on either side, and computes no more.

    Query and key (…, length, d_k), value (…, length, d_v) → values (…, length, d_v) and weights
    (…, length, 2·radius + 1), whose middle column is the position itself. It multiplies no more than it
    must, but every position has a copy of its neighbours: `window_attention` is the one to use.
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


@dataclass(frozen=True)
class Window:
    """What a position attends to: its neighbourhood, and the first ``global_tokens`` positions.

    These attend to all positions in turn. A causal window has no later positions in it, theirs neither.
    """

    radius: int
    global_tokens: int = 0
    causal: bool = False

    def __post_init__(self) -> None:
        if self.radius < 0 or self.global_tokens < 0:
            raise ValueError(f"{self.radius} positions on either side and {self.global_tokens} for all")

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether the positions ``query`` may attend to the positions ``key``; the two broadcast."""
        after = key - query
        near = after.abs() <= self.radius
        seen = near | (query < self.global_tokens) | (key < self.global_tokens)
        return seen & (after <= 0) if self.causal else seen

    def covers(self, length: int) -> bool:
        """Whether so few positions all see one another."""
        return length <= self.radius + 1


def equation_1(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, record: list[Tensor] | None
) -> Tensor:
    """Scaled dot-product attention as a `Mix`."""
    attended = scaled_dot_product_attention(query, key, value, mask)
    if record is not None:
        record.append(attended.weights)
    return attended.values


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: Window,
    seen: Tensor | None = None,
    *,
    mix: Mix = equation_1,
    record: list[Tensor] | None = None,
) -> Tensor:
    """Query, key (batch, heads, length, d_k), value (batch, heads, length, d_v) → the shape of value.

    Blocks of queries attend to the keys around them: there is no tensor of length². ``seen`` (batch, length)
    is False for keys that nobody may see. Only the weights in ``record`` are (batch, heads, length, length).
    """
    length = query.size(2)
    blocks = _Blocks(window, length, query.device)
    weights: list[Tensor] | None = None if record is None else []
    found = mix(
        blocks.queries(query), blocks.keys(key), blocks.keys(value), blocks.mask(seen, len(query)), weights
    )
    values = blocks.join(found, len(query))
    # A causal global token sees what is before it, which the blocks have seen to.
    few = 0 if window.causal else min(window.global_tokens, length)
    whole: list[Tensor] | None = None if record is None else []
    if few:
        mask = None if seen is None else seen[:, None, None]
        values = torch.cat((mix(query[:, :, :few], key, value, mask, whole), values[:, :, few:]), dim=2)
    if record is not None and weights is not None and whole is not None:
        scattered = blocks.scatter(weights[0], len(query))
        record.append(torch.cat((*whole, scattered[:, :, few:]), dim=2) if few else scattered)
    return values


class _Blocks:
    """A sequence cut into blocks of queries; the keys of a block are the global ones and those around it."""

    def __init__(self, window: Window, length: int, device: torch.device) -> None:
        self.length = length
        self.globals = min(window.global_tokens, length)
        self.before = min(window.radius, max(length - 1, 0))
        after = 0 if window.causal else self.before
        self.size = max(1, min(max(window.radius, SMALLEST_BLOCK), length))
        self.count = -(-length // self.size)
        self.width = self.before + self.size + after  # keys around a block
        self.tail = self.count * self.size - length  # positions that the last block lacks
        self.after = after + self.tail
        starts = torch.arange(self.count, device=device)[:, None] * self.size
        around = starts - self.before + torch.arange(self.width, device=device)
        first = torch.arange(self.globals, device=device).expand(self.count, -1)
        self.key_at = torch.cat((first, around), dim=1)  # (blocks, keys): the position of every key
        self.query_at = starts + torch.arange(self.size, device=device)  # (blocks, queries)
        # A global key is in view once, though it may be near as well.
        there = torch.cat((first >= 0, (around >= self.globals) & (around < length)), dim=1)
        self.allowed = there[:, None] & window.sees(self.query_at[:, :, None], self.key_at[:, None])

    def queries(self, x: Tensor) -> Tensor:
        """(batch, heads, length, d) → (batch · blocks, heads, queries, d)."""
        batch, heads, _, width = x.shape
        cut = F.pad(x, (0, 0, 0, self.tail)).view(batch, heads, self.count, self.size, width)
        return cut.transpose(1, 2).flatten(0, 1)

    def keys(self, x: Tensor) -> Tensor:
        """(batch, heads, length, d) → (batch · blocks, heads, keys, d)."""
        around = F.pad(x, (0, 0, self.before, self.after)).unfold(2, self.width, self.size)
        around = around.permute(0, 2, 1, 4, 3)  # (batch, blocks, heads, keys, d)
        if self.globals:
            first = x[:, None, :, : self.globals].expand(-1, self.count, -1, -1, -1)
            around = torch.cat((first, around), dim=3)
        return around.flatten(0, 1)

    def mask(self, seen: Tensor | None, batch: int) -> Tensor:
        """(batch, length) → (batch · blocks, 1, queries, keys)."""
        if seen is None:
            return self.allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        near = seen[:, self.key_at.clamp(0, max(self.length - 1, 0))]  # (batch, blocks, keys)
        return (near[:, :, None] & self.allowed).flatten(0, 1)[:, None]

    def join(self, x: Tensor, batch: int) -> Tensor:
        """(batch · blocks, heads, queries, d) → (batch, heads, length, d)."""
        cut = x.view(batch, self.count, *x.shape[1:]).transpose(1, 2)
        return cut.flatten(2, 3)[:, :, : self.length]

    def scatter(self, weights: Tensor, batch: int) -> Tensor:
        """(batch · blocks, heads, queries, keys) → (batch, heads, length, length)."""
        cut = weights.view(batch, self.count, *weights.shape[1:])  # (batch, blocks, heads, queries, keys)
        place = self.key_at.clamp(0, self.length - 1)[:, None, None].expand_as(cut)
        whole = cut.new_zeros(*cut.shape[:-1], self.length).scatter_add(-1, place, cut)
        return self.join(whole.flatten(0, 1), batch)


class WindowSelfAttention(SelfAttention):
    """Self-attention to a `Window`; its masks are of keys alone, and whether it is causal is its own affair.

    Global tokens share the projections of the others.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        window: Window,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout, rotary=rotary)
        self.window = window

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """(batch, length, d_model) and a mask (batch, 1, 1, length) → the same as x.

        With a cache, x continues what the cache holds, and no mask hides any of that.
        """
        seen, length = key_mask(mask), x.size(1)
        if cache is not None:
            if not self.window.causal or mask is not None or record is not None:
                raise ValueError("a cache is for a causal window, without mask and record")
            return self._continue(x, cache)
        query, key, value = self.project(x)
        if self.window.covers(length):
            if self.window.causal:
                past = causal_mask(length, device=x.device)
                mask = past if mask is None else mask & past
            return self.attend(query, key, value, mask, record)
        return self.join(window_attention(query, key, value, self.window, seen, mix=self.mix, record=record))

    def _continue(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """Of the past, the window and the global tokens alone are read."""
        start = cache.length
        query, key, value = self.project(x, start)
        key, value = cache.append(KeyValue(key, value))
        first = min(self.window.global_tokens, start)
        near = max(first, start - self.window.radius)
        at = torch.arange(cache.length, device=x.device)
        if first < near:
            key, value = (torch.cat((part[:, :, :first], part[:, :, near:]), dim=2) for part in (key, value))
            at = torch.cat((at[:first], at[near:]))
        # One position sees all that is left of its past.
        several = self.window.sees(at[-x.size(1) :, None], at) if x.size(1) > 1 else None
        return self.attend(query, key, value, several, None)
