"""What every head does over a corpus, and what the model loses without it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batching import Batch
from transduce.models.transformer import Memory, Transformer
from transduce.nn.multi_head_attention import MultiHeadAttention

Kind = Literal["encoder", "decoder", "encoder_decoder"]


@dataclass(frozen=True)
class Head:
    """A head, as means over all positions that attend; shares are of its attention, between 0 and 1."""

    attention: Kind
    layer: int  # counted from 1
    head: int
    entropy: float  # of its weights, in nats
    distance: float | None  # |i − j|; like the next three, only where a sequence attends to itself
    diagonal: float | None
    previous: float | None
    next: float | None
    first: float  # on the first position
    end: float | None  # on </s>, where that can be seen
    loss_change: float  # without this head, in nats a token
    loss_error: float | None  # standard error of that, over sentences; one alone tells nothing of it


@dataclass(frozen=True)
class HeadReport:
    """All heads of a model, over a corpus."""

    sentences: int
    tokens: int
    loss: float  # of the whole model, in nats a token
    heads: list[Head]


class Place(NamedTuple):
    """Where a head is; counted from 0."""

    attention: Kind
    layer: int
    head: int


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, whatever the model was doing."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def without_head(attention: MultiHeadAttention, head: int) -> Iterator[None]:
    """While this lasts, what the head gives is zero: ``Concat(…, 0, …) W^O``."""
    begin = head * attention.d_v

    def silence(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        values = inputs[0].clone()  # (batch, query, heads·d_v)
        values[..., begin : begin + attention.d_v] = 0
        return (values,)

    handle = attention.output.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        handle.remove()


def attention_at(model: Transformer, kind: Kind, layer: int) -> MultiHeadAttention:
    """The sublayer whose heads these are."""
    if kind == "encoder":
        return model.encoder.layers[layer].self_attention
    decoder = model.decoder.layers[layer]
    return decoder.self_attention if kind == "decoder" else decoder.memory_attention


def places(model: Transformer) -> list[Place]:
    """Every head of a model."""
    counts: dict[Kind, int] = {
        "encoder": len(model.encoder.layers),
        "decoder": len(model.decoder.layers),
        "encoder_decoder": len(model.decoder.layers),
    }
    return [
        Place(kind, layer, head)
        for kind, layers in counts.items()
        for layer in range(layers)
        for head in range(attention_at(model, kind, layer).heads)
    ]


@torch.no_grad()
def examine_heads(
    model: Transformer, batches: list[Batch], progress: Callable[[], Any] = lambda: None
) -> HeadReport:
    """Look at every head over these batches; ``progress`` hears of each batch that is done.

    The loss without a head is of the model as it stands, not trained further; changes do not add up when
    several heads are taken away.
    """
    found = places(model)
    habits: dict[Place, Tensor] = {place: torch.zeros(len(_HABITS), dtype=torch.float64) for place in found}
    changes: dict[Place, list[Tensor]] = {place: [] for place in found}
    losses, counts = [], []
    with evaluating(model):
        for batch in batches:
            for place, seen in _habits(model, batch).items():
                habits[place] += seen
            memory = model.encode(batch.source)
            whole = sentence_losses(model, batch, memory)
            losses.append(whole)
            counts.append((batch.labels != model.vocabulary.pad).sum(dim=1).double().cpu())
            for place in found:
                with without_head(attention_at(model, place.attention, place.layer), place.head):
                    # The decoder's heads do not change what the encoder says.
                    seen_memory = model.encode(batch.source) if place.attention == "encoder" else memory
                    changes[place].append(sentence_losses(model, batch, seen_memory) - whole)
            progress()
    tokens = torch.cat(counts)
    heads = [_head(place, habits[place], torch.cat(changes[place]), tokens) for place in found]
    total = float(tokens.sum())
    return HeadReport(len(tokens), int(total), float(torch.cat(losses).sum()) / total, heads)


def sentence_losses(model: Transformer, batch: Batch, memory: Memory) -> Tensor:
    """Negative log-likelihood of each sentence's labels, (batch,), in nats."""
    real = batch.labels != model.vocabulary.pad
    hidden = model.decode(batch.target, memory)[real]  # padding is never projected
    losses = F.cross_entropy(model.output.logits(hidden).float(), batch.labels[real], reduction="none")
    each = torch.zeros(real.shape, dtype=torch.float64, device=real.device)
    each[real] = losses.double()
    return each.sum(dim=1).cpu()


_HABITS = ("rows", "entropy", "distance", "diagonal", "previous", "next", "first", "end")


def _habits(model: Transformer, batch: Batch) -> dict[Place, Tensor]:
    """Of each head, the sums over all real queries of what `_HABITS` names."""
    weights = model.attention(batch.source, batch.target)
    seen: list[tuple[Kind, list[Tensor], Tensor, Tensor]] = [
        ("encoder", weights.encoder, batch.source, batch.source),
        ("decoder", weights.decoder, batch.target, batch.target),
        ("encoder_decoder", weights.encoder_decoder, batch.target, batch.source),
    ]
    found: dict[Place, Tensor] = {}
    for kind, layers, queries, keys in seen:
        real = queries != model.vocabulary.pad
        ends = keys == model.vocabulary.eos
        for number, layer in enumerate(layers):
            sums = habit_sums(layer, real, ends)
            found |= {Place(kind, number, head): one for head, one in enumerate(sums)}
    return found


def habit_sums(weights: Tensor, real: Tensor, ends: Tensor) -> Tensor:
    """Weights (batch, heads, query, key), real queries and end keys (batch, …) → sums (heads, habits)."""
    weights = weights.double()
    query, key = weights.shape[-2:]
    apart = torch.arange(key, device=weights.device) - torch.arange(query, device=weights.device)[:, None]
    each = [
        torch.ones_like(weights[..., 0]),
        torch.special.entr(weights).sum(dim=-1),
        (weights * apart.abs()).sum(dim=-1),
        *((weights * (apart == offset)).sum(dim=-1) for offset in (0, -1, 1)),
        weights[..., 0],
        (weights * ends[:, None, None]).sum(dim=-1),
    ]
    stacked = torch.stack(each, dim=-1) * real[:, None, :, None]  # (batch, heads, query, habits)
    return stacked.sum(dim=(0, 2)).cpu()


def _head(place: Place, sums: Tensor, changes: Tensor, tokens: Tensor) -> Head:
    mean = dict(zip(_HABITS, (sums / sums[0]).tolist(), strict=True))
    within = place.attention != "encoder_decoder"
    change = float(changes.sum() / tokens.sum())
    # Of a ratio of sums: sentences are drawn, and bring their tokens with them.
    spread, count = float((changes - change * tokens).square().sum().sqrt() / tokens.sum()), len(tokens)
    return Head(
        attention=place.attention,
        layer=place.layer + 1,
        head=place.head + 1,
        entropy=mean["entropy"],
        distance=mean["distance"] if within else None,
        diagonal=mean["diagonal"] if within else None,
        previous=mean["previous"] if within else None,
        next=mean["next"] if place.attention == "encoder" else None,
        first=mean["first"],
        end=None if place.attention == "decoder" else mean["end"],
        loss_change=change,
        loss_error=spread * math.sqrt(count / (count - 1)) if count > 1 else None,
    )
