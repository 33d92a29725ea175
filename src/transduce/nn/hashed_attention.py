"""Self-attention to what is alike, found by locality-sensitive hashing (Reformer: Kitaev et al., 2020).

Queries are keys here, and keys have length 1: ``o_i = Σ_j∈P_i softmax_j(q_i · q_j/‖q_j‖) v_j``. Vectors that
point the same way likely fall into one bucket, and P_i is what shares a bucket with i in one of the rounds.
A bucket is cut into chunks in the order of the positions, and i sees its own chunk and the one before it.

The Reformer sorts by bucket and cuts the whole row into chunks; there, a later position can move an earlier
one into another chunk. Here each bucket has chunks of its own: where a position is depends on its past alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import Attended, MultiHeadAttention, masked_softmax
from transduce.nn.dropout import Random
from transduce.nn.linear import FusedLinear
from transduce.nn.masks import key_mask
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValue, KeyValueCache

ITSELF = -1e5  # a position's score for itself, which would be its best match: it counts if there is no other
SEED = 1


def shared_attention(query: Tensor, value: Tensor, mask: Tensor | None, *, start: int = 0) -> Attended:
    """Attention where the keys are the queries, as written: all of them, and a mask (…, query, key).

    ``query`` (…, length, d_k), of which the queries are those from ``start`` on; value (…, length, d_v).
    """
    length = query.size(-2)
    scores = query[..., start:, :] @ F.normalize(query, dim=-1).transpose(-2, -1)
    at = torch.arange(length, device=query.device)
    weights = masked_softmax(scores.float().masked_fill(at[start:, None] == at, ITSELF), mask)
    return Attended(weights.to(value.dtype) @ value, weights)


class Rotations(Random):
    """Random directions to hash by: new ones for every pass in training, the same ones otherwise."""

    def __init__(self, heads: int, rounds: int, d_k: int, buckets: int) -> None:
        super().__init__()
        if buckets < 1 or (buckets > 1 and buckets % 2) or rounds < 1:
            raise ValueError(f"{buckets} buckets and {rounds} rounds: give an even number of buckets, or one")
        self.buckets = buckets
        self.shape = (heads, rounds, d_k, buckets // 2)
        self._fixed: dict[torch.device, Tensor] = {}  # no state: made anew from its seed

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, heads, length, d_k) → the bucket of each position, (batch, heads, rounds, length).

        It is the direction nearest to x, of d and −d for every one drawn.
        """
        if self.buckets == 1:
            return x.new_zeros(*x.shape[:2], self.shape[1], x.size(2), dtype=torch.long)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            turned = x.detach().float().unsqueeze(2) @ self._draw(x.device)
            return torch.cat((turned, -turned), dim=-1).argmax(dim=-1)

    def _draw(self, device: torch.device) -> Tensor:
        if self.training:
            return torch.randn(self.shape, generator=self.generator, device=device)
        if device not in self._fixed:
            fixed = torch.Generator().manual_seed(SEED)
            with torch.inference_mode(False):
                self._fixed[device] = torch.randn(self.shape, generator=fixed, device="cpu").to(device)
        return self._fixed[device]


class Places(NamedTuple):
    """Where the positions of a sequence are, in each round: (batch, heads, rounds, length) each."""

    bucket: Tensor
    chunk: Tensor  # of its bucket
    rank: Tensor  # among the positions of its bucket

    def code(self) -> Tensor:
        """A number for bucket and chunk; i sees the chunk of j if the code of i is that of j, or one more."""
        return (
            self.bucket * (self.bucket.size(-1) + 2) + self.chunk
        ).int()  # compared in pairs: small is fast


def find_places(bucket: Tensor, chunk_size: int) -> Places:
    """Cut buckets, (…, length), into chunks of so many positions."""
    order = bucket.argsort(dim=-1, stable=True)
    ordered = bucket.gather(-1, order)
    at = torch.arange(bucket.size(-1), device=bucket.device).expand_as(bucket)
    begins = ordered != ordered.roll(1, dims=-1)
    # The index at which the bucket of each begins: the highest beginning so far.
    begin = torch.where(begins, at, 0).cummax(dim=-1).values
    rank = torch.empty_like(bucket).scatter_(-1, order, at - begin)
    return Places(bucket, rank // chunk_size, rank)


def visible(places: Places, causal: bool, *, start: int = 0) -> Tensor:
    """Whether i, from ``start`` on, sees j in any round: a mask, (batch, heads, query, key)."""
    code = places.code()
    seen = _meet(code[..., start:], code).any(dim=2)
    at = torch.arange(code.size(-1), device=code.device)
    return seen & (at <= at[start:, None]) if causal else seen


def _meet(query: Tensor, key: Tensor) -> Tensor:
    """Of codes, (…, query) and (…, key): whether the key's chunk is the query's, or the one before."""
    apart = query.unsqueeze(-1) - key.unsqueeze(-2)
    return (apart == 0) | (apart == 1)


class _Chunks:
    """Every round's positions, moved into the chunks that they share."""

    def __init__(self, places: Places, size: int, buckets: int) -> None:
        self.size = size
        batch, heads, self.rounds, self.length = places.bucket.shape
        # However they are spread, each bucket has at most one chunk that is not full.
        self.count = (self.length + buckets * (size - 1)) // size
        sizes = torch.zeros(batch, heads, self.rounds, buckets, dtype=torch.long, device=places.bucket.device)
        sizes.scatter_add_(-1, places.bucket, torch.ones_like(places.bucket))
        chunks = -(-sizes // size)
        first = chunks.cumsum(dim=-1) - chunks  # the first chunk of each bucket
        self.slot = first.gather(-1, places.bucket) * size + places.rank  # (batch, heads, rounds, length)
        at = torch.arange(self.length, device=self.slot.device).expand_as(self.slot)
        empty = at.new_full((batch, heads, self.rounds, self.count * size), self.length)
        self.position = empty.scatter(-1, self.slot, at)  # of each slot; ``length`` where there is none

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
    """Each chunk's slots behind those of the chunk before it; chunks are dimension 3, slots ``dim``."""
    before = torch.cat((torch.full_like(x[:, :, :, :1], fill), x[:, :, :, :-1]), dim=3)
    return torch.cat((before, x), dim=dim)


class HashedSelfAttention(MultiHeadAttention):
    """Attention within buckets; its masks are of keys alone, and whether it is causal is its own affair."""

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
        self.rotations = Rotations(heads, rounds, self.d_k, buckets)
        self.rotary = rotary

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
        seen, start = key_mask(mask), 0 if cache is None else cache.length
        query, value = (self.split(part) for part in torch.split(self.query_value(x), self.widths, dim=-1))
        if self.rotary is not None:
            query = self.rotary(query, start)
        if cache is None:
            return self.join(self.attend_within_chunks(query, value, seen, record))
        if not self.causal or mask is not None or record is not None:
            raise ValueError("a cache is for causal attention, without mask and record")
        query, value = cache.append(KeyValue(query, value))
        places = find_places(self.rotations(query), self.chunk)
        last = visible(places, self.causal, start=start)
        return self.join(shared_attention(query, value, last, start=start).values)

    def attend_within_chunks(
        self, query: Tensor, value: Tensor, seen: Tensor | None, record: list[Tensor] | None
    ) -> Tensor:
        """(batch, heads, length, d_k) and (batch, heads, length, d_v) → (batch, heads, length, d_v)."""
        bucket, buckets = self.rotations(query), self.rotations.buckets
        if seen is not None:  # what is hidden has a bucket of its own, and is in nobody's way
            bucket, buckets = bucket.masked_fill(~seen[:, None, None], buckets), buckets + 1
        size = max(1, min(self.chunk, query.size(2)))  # no bucket has more
        places = find_places(bucket, size)
        chunks = _Chunks(places, size, buckets)
        key = F.normalize(query, dim=-1)
        scores = chunks.spread(query) @ with_previous(chunks.spread(key), 4, 0).transpose(-2, -1)
        allowed, itself, often = self._relations(chunks, places, seen)
        # In several rounds' view, a key counts once: what is the same in each is divided among them.
        scores = (scores.float() - often.log()).masked_fill(itself, ITSELF)
        weights = masked_softmax(scores, allowed)  # (batch, heads, rounds, chunks, slots, 2 · slots)
        total = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).logsumexp(-1, keepdim=True)
        portion = chunks.collect(total).softmax(dim=2)  # of each round: (batch, heads, rounds, length, 1)
        if record is not None:
            record.append(self._scatter(weights, portion, chunks))
        mixed = self.dropout(weights).to(value.dtype) @ with_previous(chunks.spread(value), 4, 0)
        return (chunks.collect(mixed) * portion.to(value.dtype)).sum(dim=2)

    def _relations(
        self, chunks: _Chunks, places: Places, seen: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of slots, (…, slots, 2 · slots): may the one see the other, are they one, in how many rounds."""
        at, heads = chunks.positions(), places.bucket.size(1)
        query_at, key_at = at.unsqueeze(-1), with_previous(at, 4, chunks.length).unsqueeze(-2)
        code = chunks.spread(places.code().transpose(2, 3))  # (batch, heads, rounds, chunks, slots, rounds)
        key_code = with_previous(code, 4, 0)
        rounds = range(chunks.rounds)
        often = sum((_meet(code[..., r], key_code[..., r]) for r in rounds), torch.zeros(1, device=at.device))
        # That of a slot itself is of the round that put it there.
        own = [_meet(code[:, :, r, ..., r], key_code[:, :, r, ..., r]) for r in rounds]
        allowed = torch.stack(own, dim=2)
        if seen is None:
            allowed = allowed & (key_at < chunks.length)
        else:
            there = F.pad(seen, (0, 1))[:, None].expand(-1, heads, -1)  # False where there is no position
            allowed = allowed & there.gather(2, key_at.flatten(2)).view_as(key_at)
        query_at, key_at = query_at.int(), key_at.int()
        if self.causal:
            allowed = allowed & (key_at <= query_at)
        return allowed, query_at == key_at, often.clamp(min=1)

    def _scatter(self, weights: Tensor, portion: Tensor, chunks: _Chunks) -> Tensor:
        """The rounds' weights, together: (batch, heads, length, length)."""
        key_at = with_previous(
            chunks.positions(), 4, chunks.length
        )  # (batch, heads, rounds, chunks, 2 · slots)
        place = key_at.unsqueeze(-2).expand(weights.shape)
        whole = weights.new_zeros(*weights.shape[:-1], chunks.length + 1).scatter_add(-1, place, weights)
        return (chunks.collect(whole[..., :-1]) * portion).sum(dim=2)
