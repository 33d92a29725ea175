"""Self-attention to similar positions, found by locality-sensitive hashing (Reformer: Kitaev et al., 2020).

Queries and keys are the same vectors, with keys scaled to length 1: ``o_i = Σ_j∈P_i softmax_j(q_i ·
q_j/‖q_j‖) v_j``. Vectors that point in the same direction likely hash to the same bucket, and P_i are the
positions that share a bucket with i in at least one round. Each bucket is cut into chunks in the order of the
positions, and i attends to its own chunk and to the one before it.

The Reformer sorts all positions by bucket and cuts the sorted sequence into chunks, so that a later position
can move an earlier one into another chunk. Here every bucket has its own chunks, and the chunk of a position
depends on its past alone: causal models stay causal.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import Attended, masked_softmax
from transduce.nn.dropout import Random
from transduce.nn.linear import FusedLinear
from transduce.nn.masks import check_key_mask
from transduce.nn.multi_head_attention import SelfAttention
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValue, KeyValueCache

# A position would be its own best match. With this score, it attends to itself only if it sees no other key.
SELF_SCORE = -1e5
SEED = 1


def shared_attention(query: Tensor, value: Tensor, mask: Tensor | None, *, start: int = 0) -> Attended:
    """Compute attention with shared queries and keys as written, over all keys and a mask (…, query, key).

    ``query`` is (…, length, d_k); positions from ``start`` on act as queries. ``value`` is (…, length, d_v).
    """
    length = query.size(-2)
    scores = query[..., start:, :] @ F.normalize(query, dim=-1).transpose(-2, -1)
    at = torch.arange(length, device=query.device)
    weights = masked_softmax(scores.float().masked_fill(at[start:, None] == at, SELF_SCORE), mask)
    return Attended(weights.to(value.dtype) @ value, weights)


class Hashing(Random):
    """A hash by random directions: new ones for every forward pass in training, fixed ones otherwise."""

    def __init__(self, heads: int, rounds: int, d_k: int, buckets: int) -> None:
        super().__init__()
        if buckets < 1 or (buckets > 1 and buckets % 2) or rounds < 1:
            raise ValueError(
                f"buckets must be even or 1 (not {buckets}) and rounds at least 1 (not {rounds})"
            )
        self.buckets = buckets
        self.shape = (heads, rounds, d_k, buckets // 2)
        self._fixed: dict[torch.device, Tensor] = {}  # derived from SEED, therefore not in the state dict

    def forward(self, x: Tensor) -> Tensor:
        """Hash x (batch, heads, length, d_k) → the bucket of each position, (batch, heads, rounds, length).

        A bucket is the direction nearest to x among ±d for every random direction d.
        """
        if self.buckets == 1:
            return x.new_zeros(*x.shape[:2], self.shape[1], x.size(2), dtype=torch.long)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            projected = x.detach().float().unsqueeze(2) @ self._directions(x.device)
            return torch.cat((projected, -projected), dim=-1).argmax(dim=-1)

    def _directions(self, device: torch.device) -> Tensor:
        """Return random directions, (heads, rounds, d_k, buckets / 2)."""
        if self.training:
            return torch.randn(self.shape, generator=self.generator, device=device)
        if device not in self._fixed:
            fixed = torch.Generator().manual_seed(SEED)
            with torch.inference_mode(False):
                self._fixed[device] = torch.randn(self.shape, generator=fixed, device="cpu").to(device)
        return self._fixed[device]


class Placement(NamedTuple):
    """The bucket and chunk of every position in each round: (batch, heads, rounds, length) each."""

    bucket: Tensor
    chunk: Tensor  # within the bucket
    rank: Tensor  # within the bucket

    def code(self) -> Tensor:
        """Encode bucket and chunk in one number: i sees j if its code equals that of j, or is one more."""
        # int32, because all pairs of codes are compared.
        return (self.bucket * (self.bucket.size(-1) + 2) + self.chunk).int()


def place_positions(bucket: Tensor, chunk_size: int) -> Placement:
    """Cut buckets, (…, length), into chunks of ``chunk_size`` positions."""
    order = bucket.argsort(dim=-1, stable=True)
    ordered = bucket.gather(-1, order)
    at = torch.arange(bucket.size(-1), device=bucket.device).expand_as(bucket)
    begins = ordered != ordered.roll(1, dims=-1)
    # The index at which each position's bucket begins is the highest beginning so far.
    begin = torch.where(begins, at, 0).cummax(dim=-1).values
    rank = torch.empty_like(bucket).scatter_(-1, order, at - begin)
    return Placement(bucket, rank // chunk_size, rank)


def visible_keys(placement: Placement, causal: bool, *, start: int = 0) -> Tensor:
    """Return which keys the positions from ``start`` on see in any round: (batch, heads, query, key)."""
    code = placement.code()
    visible = _meet(code[..., start:], code).any(dim=2)
    at = torch.arange(code.size(-1), device=code.device)
    return visible & (at <= at[start:, None]) if causal else visible


def _meet(query: Tensor, key: Tensor) -> Tensor:
    """Compare codes (…, query) and (…, key): the key's chunk is the query's, or the one before it."""
    apart = query.unsqueeze(-1) - key.unsqueeze(-2)
    return (apart == 0) | (apart == 1)


class _Chunks:
    """The positions of every round, gathered into their chunks."""

    def __init__(self, placement: Placement, size: int, buckets: int) -> None:
        self.size = size
        batch, heads, self.rounds, self.length = placement.bucket.shape
        # Each bucket has at most one chunk that is not full.
        self.count = (self.length + buckets * (size - 1)) // size
        sizes = torch.zeros(
            batch, heads, self.rounds, buckets, dtype=torch.long, device=placement.bucket.device
        )
        sizes.scatter_add_(-1, placement.bucket, torch.ones_like(placement.bucket))
        chunks = -(-sizes // size)
        first = chunks.cumsum(dim=-1) - chunks  # the first chunk of each bucket
        # Shape: (batch, heads, rounds, length).
        self.slot = first.gather(-1, placement.bucket) * size + placement.rank
        at = torch.arange(self.length, device=self.slot.device).expand_as(self.slot)
        empty = at.new_full((batch, heads, self.rounds, self.count * size), self.length)
        self.position = empty.scatter(-1, self.slot, at)  # of each slot; ``length`` in empty slots

    def spread(self, x: Tensor) -> Tensor:
        """(batch, heads, length, d) → (batch, heads, rounds, chunks, slots, d), zeros in empty slots."""
        place = self.position.flatten(2).unsqueeze(-1).expand(-1, -1, -1, x.size(-1))
        spread = F.pad(x, (0, 0, 0, 1)).gather(2, place)
        return spread.view(*x.shape[:2], self.rounds, self.count, self.size, x.size(-1))

    def positions(self) -> Tensor:
        """(batch, heads, rounds, chunks, slots)."""
        return self.position.view(*self.position.shape[:3], self.count, self.size)

    def collect(self, x: Tensor) -> Tensor:
        """(batch, heads, rounds, chunks, slots, d) → (batch, heads, rounds, length, d)."""
        place = self.slot.unsqueeze(-1).expand(*self.slot.shape, x.size(-1))
        return x.flatten(3, 4).gather(3, place)


def with_previous(x: Tensor, dim: int, fill: float) -> Tensor:
    """Prepend the slots of the previous chunk to each chunk's; chunks are dimension 3, slots ``dim``."""
    before = torch.cat((torch.full_like(x[:, :, :, :1], fill), x[:, :, :, :-1]), dim=3)
    return torch.cat((before, x), dim=dim)


class HashedSelfAttention(SelfAttention):
    """Self-attention within hash buckets."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        buckets: int,
        rounds: int,
        chunk: int,
        causal: bool = False,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(d_model, heads, d_k=d_k, d_v=d_v, dropout=dropout)
        self.chunk, self.causal = chunk, causal
        self.widths = [heads * self.d_k, heads * self.d_v]
        self.query_value = FusedLinear(d_model, self.widths)
        self.hashing = Hashing(heads, rounds, self.d_k, buckets)
        self.rotary = rotary

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend as `SelfAttention.forward` says; a cache goes with causal attention and without a mask."""
        start = 0 if cache is None else cache.length
        parts = torch.split(self.query_value(x), self.widths, dim=-1)
        query, value = (self.split_heads(part) for part in parts)
        if self.rotary is not None:
            query = self.rotary(query, start)
        if cache is None:
            check_key_mask(key_mask, *x.shape[:2])
            return self.join_heads(self.attend_within_chunks(query, value, key_mask, record))
        if not self.causal or key_mask is not None or record is not None:
            raise ValueError("a cache needs causal attention, no key_mask and no record")
        query, value = cache.append(KeyValue(query, value))
        placement = place_positions(self.hashing(query), self.chunk)
        mask = visible_keys(placement, self.causal, start=start)
        return self.join_heads(shared_attention(query, value, mask, start=start).values)

    def attend_within_chunks(
        self, query: Tensor, value: Tensor, key_mask: Tensor | None, record: list[Tensor] | None
    ) -> Tensor:
        """Attend from (batch, heads, length, d_k) to (batch, heads, length, d_v) → the shape of value."""
        bucket, buckets = self.hashing(query), self.hashing.buckets
        if key_mask is not None:  # hidden positions go to a bucket of their own, so that they fill no chunk
            bucket, buckets = bucket.masked_fill(~key_mask[:, None, None], buckets), buckets + 1
        size = max(1, min(self.chunk, query.size(2)))
        placement = place_positions(bucket, size)
        chunks = _Chunks(placement, size, buckets)
        key = F.normalize(query, dim=-1)
        scores = chunks.spread(query) @ with_previous(chunks.spread(key), 4, 0).transpose(-2, -1)
        allowed, is_self, rounds = self._relations(chunks, placement, key_mask)
        # A key that is visible in several rounds counts once: its weight is divided among them.
        scores = (scores.float() - rounds.log()).masked_fill(is_self, SELF_SCORE)
        weights = masked_softmax(scores, allowed)  # (batch, heads, rounds, chunks, slots, 2 · slots)
        total = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).logsumexp(-1, keepdim=True)
        share = chunks.collect(total).softmax(dim=2)  # of each round: (batch, heads, rounds, length, 1)
        if record is not None:
            record.append(self._scatter(weights, share, chunks))
        mixed = self.dropout(weights).to(value.dtype) @ with_previous(chunks.spread(value), 4, 0)
        return (chunks.collect(mixed) * share.to(value.dtype)).sum(dim=2)

    def _relations(
        self, chunks: _Chunks, placement: Placement, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return for slots, (…, slots, 2 · slots): attention allowed, same position, number of rounds."""
        at, heads = chunks.positions(), placement.bucket.size(1)
        query_at, key_at = at.unsqueeze(-1), with_previous(at, 4, chunks.length).unsqueeze(-2)
        # Shape: (batch, heads, rounds, chunks, slots, rounds).
        code = chunks.spread(placement.code().transpose(2, 3))
        key_code = with_previous(code, 4, 0)
        rounds = range(chunks.rounds)
        meetings = sum(
            (_meet(code[..., r], key_code[..., r]) for r in rounds), torch.zeros(1, device=at.device)
        )
        # A slot belongs to the round that filled it.
        own = [_meet(code[:, :, r, ..., r], key_code[:, :, r, ..., r]) for r in rounds]
        allowed = torch.stack(own, dim=2)
        if key_mask is None:
            allowed = allowed & (key_at < chunks.length)
        else:
            visible = F.pad(key_mask, (0, 1))[:, None].expand(-1, heads, -1)  # False for empty slots
            allowed = allowed & visible.gather(2, key_at.flatten(2)).view_as(key_at)
        query_at, key_at = query_at.int(), key_at.int()
        if self.causal:
            allowed = allowed & (key_at <= query_at)
        return allowed, query_at == key_at, meetings.clamp(min=1)

    def _scatter(self, weights: Tensor, share: Tensor, chunks: _Chunks) -> Tensor:
        """Sum the weights of all rounds: (batch, heads, length, length)."""
        # (batch, heads, rounds, chunks, 2 · slots)
        key_at = with_previous(chunks.positions(), 4, chunks.length)
        place = key_at.unsqueeze(-2).expand(weights.shape)
        whole = weights.new_zeros(*weights.shape[:-1], chunks.length + 1).scatter_add(-1, place, weights)
        return (chunks.collect(whole[..., :-1]) * share).sum(dim=2)
