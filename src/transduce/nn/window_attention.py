"""Self-attention restricted to a neighbourhood (section 4, the last row of Table 1).

Every position attends to a window of positions on either side and, with global tokens, to the first
positions of the sequence (Longformer: Beltagy et al., 2020).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import Attended, masked_softmax, scaled_dot_product_attention
from transduce.nn.masks import causal_mask, check_key_mask
from transduce.nn.multi_head_attention import ProjectedSelfAttention
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValue, KeyValueCache

SMALLEST_BLOCK = 32  # queries; products of smaller blocks take longer to start than to compute

# (query, key, value, mask, record) → values, as `MultiHeadAttention.attend`
Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, list[Tensor] | None], Tensor]


def restricted_attention(query: Tensor, key: Tensor, value: Tensor, radius: int) -> Attended:
    """Let every position attend to itself and to ``radius`` positions on either side, and compute no more.

    Query and key (…, length, d_k), value (…, length, d_v) → values (…, length, d_v) and weights
    (…, length, 2·radius + 1), whose middle column is the position itself. This form does the fewest
    multiplications but copies every neighbourhood; models use `window_attention`.
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
    """What a position attends to: its neighbourhood and the first ``global_tokens`` positions.

    Global positions attend to all positions. In a causal window nothing attends to later positions.
    """

    radius: int
    global_tokens: int = 0
    causal: bool = False

    def __post_init__(self) -> None:
        if self.radius < 0 or self.global_tokens < 0:
            raise ValueError(
                f"radius ({self.radius}) and global_tokens ({self.global_tokens}) must not be negative"
            )

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Return whether positions ``query`` may attend to positions ``key``; the two broadcast."""
        distance = key - query
        near = distance.abs() <= self.radius
        allowed = near | (query < self.global_tokens) | (key < self.global_tokens)
        return allowed & (distance <= 0) if self.causal else allowed

    def covers(self, length: int) -> bool:
        """Return whether all positions of a sequence of this length are neighbours."""
        return length <= self.radius + 1


def equation_1(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, record: list[Tensor] | None
) -> Tensor:
    """Compute scaled dot-product attention with the signature of `Attend`."""
    attended = scaled_dot_product_attention(query, key, value, mask)
    if record is not None:
        record.append(attended.weights)
    return attended.values


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: Window,
    key_mask: Tensor | None = None,
    *,
    attend: Attend = equation_1,
    record: list[Tensor] | None = None,
) -> Tensor:
    """Query, key (batch, heads, length, d_k), value (batch, heads, length, d_v) → the shape of value.

    Blocks of queries attend to the keys around them, so that no tensor has length² elements; only the
    weights in ``record`` do, (batch, heads, length, length). ``key_mask`` is (batch, length).
    """
    length = query.size(2)
    blocks = _Blocks(window, length, query.device)
    block_weights: list[Tensor] | None = None if record is None else []
    values = attend(
        blocks.queries(query),
        blocks.keys(key),
        blocks.keys(value),
        blocks.mask(key_mask, len(query)),
        block_weights,
    )
    values = blocks.join(values, len(query))
    # Causal global tokens see only their past, which the blocks have covered.
    global_count = 0 if window.causal else min(window.global_tokens, length)
    global_weights: list[Tensor] | None = None if record is None else []
    if global_count:
        mask = None if key_mask is None else key_mask[:, None, None]
        global_values = attend(query[:, :, :global_count], key, value, mask, global_weights)
        values = torch.cat((global_values, values[:, :, global_count:]), dim=2)
    if record is not None and block_weights is not None and global_weights is not None:
        scattered = blocks.scatter(block_weights[0], len(query))
        local = scattered[:, :, global_count:]
        record.append(torch.cat((*global_weights, local), dim=2) if global_count else scattered)
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
        self.tail = self.count * self.size - length  # positions missing from the last block
        self.after = after + self.tail
        starts = torch.arange(self.count, device=device)[:, None] * self.size
        around = starts - self.before + torch.arange(self.width, device=device)
        first = torch.arange(self.globals, device=device).expand(self.count, -1)
        self.key_positions = torch.cat((first, around), dim=1)  # (blocks, keys)
        self.query_positions = starts + torch.arange(self.size, device=device)  # (blocks, queries)
        # A global key counts once, even where it is a neighbour as well.
        exists = torch.cat((first >= 0, (around >= self.globals) & (around < length)), dim=1)
        self.allowed = exists[:, None] & window.allows(
            self.query_positions[:, :, None], self.key_positions[:, None]
        )

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

    def mask(self, key_mask: Tensor | None, batch: int) -> Tensor:
        """(batch, length) → (batch · blocks, 1, queries, keys)."""
        if key_mask is None:
            return self.allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        visible = key_mask[:, self.key_positions.clamp(0, max(self.length - 1, 0))]  # (batch, blocks, keys)
        return (visible[:, :, None] & self.allowed).flatten(0, 1)[:, None]

    def join(self, x: Tensor, batch: int) -> Tensor:
        """(batch · blocks, heads, queries, d) → (batch, heads, length, d)."""
        cut = x.view(batch, self.count, *x.shape[1:]).transpose(1, 2)
        return cut.flatten(2, 3)[:, :, : self.length]

    def scatter(self, weights: Tensor, batch: int) -> Tensor:
        """(batch · blocks, heads, queries, keys) → (batch, heads, length, length)."""
        cut = weights.view(batch, self.count, *weights.shape[1:])  # (batch, blocks, heads, queries, keys)
        place = self.key_positions.clamp(0, self.length - 1)[:, None, None].expand_as(cut)
        scattered = cut.new_zeros(*cut.shape[:-1], self.length).scatter_add(-1, place, cut)
        return self.join(scattered.flatten(0, 1), batch)


class WindowSelfAttention(ProjectedSelfAttention):
    """Self-attention within a `Window`. Global tokens share the projections of the others."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        radius: int,
        global_tokens: int = 0,
        causal: bool = False,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout, rotary=rotary)
        self.window = Window(radius, global_tokens, causal)

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend as `SelfAttention.forward` says; a cache goes with a causal window and without a mask."""
        if cache is not None:
            if not self.window.causal or key_mask is not None or record is not None:
                raise ValueError("a cache needs a causal window, no key_mask and no record")
            return self._continue(x, cache)
        check_key_mask(key_mask, *x.shape[:2])
        query, key, value = self.project(x)
        if not self.window.covers(x.size(1)):
            values = window_attention(
                query, key, value, self.window, key_mask, attend=self.attend, record=record
            )
            return self.join_heads(values)
        mask = None if key_mask is None else key_mask[:, None, None]
        if self.window.causal:
            past = causal_mask(x.size(1), device=x.device)
            mask = past if mask is None else mask & past
        return self.join_heads(self.attend(query, key, value, mask, record))

    def _continue(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """Attend from new positions to the window and the global tokens of the cached past."""
        start = cache.length
        query, key, value = self.project(x, start)
        key, value = cache.append(KeyValue(key, value))
        global_end = min(self.window.global_tokens, start)
        near_start = max(global_end, start - self.window.radius)
        positions = torch.arange(cache.length, device=x.device)
        if global_end < near_start:
            key, value = (
                torch.cat((part[:, :, :global_end], part[:, :, near_start:]), dim=2) for part in (key, value)
            )
            positions = torch.cat((positions[:global_end], positions[near_start:]))
        # A single new position may attend to all keys that are left.
        mask = self.window.allows(positions[-x.size(1) :, None], positions) if x.size(1) > 1 else None
        return self.join_heads(self.attend(query, key, value, mask, None))
