"""Statistics of every attention head over a corpus, and the loss of the model without it."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batching import Batch
from transduce.models.evaluation_mode import evaluating
from transduce.models.transformer import Memory, Transformer
from transduce.nn.multi_head_attention import MultiHeadAttention

Kind = Literal["encoder", "decoder", "encoder_decoder"]


@dataclass(frozen=True)
class Head:
    """Statistics of a head: means over all query positions; shares of its attention are between 0 and 1."""

    attention: Kind
    layer: int  # counted from 1, like the head
    head: int
    entropy: float  # of its weights, in nats
    distance: float | None  # |i − j|; this and the next three only in self-attention
    diagonal: float | None
    previous: float | None
    next: float | None
    first: float  # share on the first position
    end: float | None  # share on </s>, unless it is masked
    loss_change: float  # when this head is removed, in nats per token
    loss_error: float | None  # its standard error over sentences; None for a single sentence


@dataclass(frozen=True)
class HeadReport:
    """Statistics of all heads of a model over a corpus."""

    sentences: int
    tokens: int
    loss: float  # of the complete model, in nats per token
    heads: list[Head]


class HeadPosition(NamedTuple):
    """The position of a head in a model; layers and heads are counted from 0."""

    attention: Kind
    layer: int
    head: int


@contextmanager
def without_head(attention: MultiHeadAttention, head: int) -> Iterator[None]:
    """Replace the output of a head by zero: ``Concat(…, 0, …) W^O``."""
    begin = head * attention.d_v

    def remove(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        values = inputs[0].clone()  # (batch, query, heads·d_v)
        values[..., begin : begin + attention.d_v] = 0
        return (values,)

    handle = attention.output.register_forward_pre_hook(remove)
    try:
        yield
    finally:
        handle.remove()


def attention_at(model: Transformer, kind: Kind, layer: int) -> MultiHeadAttention:
    """Return an attention sublayer."""
    if kind == "encoder":
        return model.encoder.layers[layer].self_attention
    decoder = model.decoder.layers[layer]
    attention = decoder.self_attention if kind == "decoder" else decoder.memory_attention
    assert isinstance(attention, MultiHeadAttention)  # noqa: S101
    return attention


def head_positions(model: Transformer) -> list[HeadPosition]:
    """Return the position of every head of a model."""
    counts: dict[Kind, int] = {
        "encoder": len(model.encoder.layers),
        "decoder": len(model.decoder.layers) if model.config.decoder == "attention" else 0,
        "encoder_decoder": len(model.decoder.layers),
    }
    return [
        HeadPosition(kind, layer, head)
        for kind, layers in counts.items()
        for layer in range(layers)
        for head in range(attention_at(model, kind, layer).heads)
    ]


@torch.no_grad()
def examine_heads(model: Transformer, batches: Iterable[Batch]) -> HeadReport:
    """Examine every head over these batches.

    The model is not retrained without a head, and the losses of several heads do not add up.
    """
    positions = head_positions(model)
    sums = {position: torch.zeros(len(_STATISTICS), dtype=torch.float64) for position in positions}
    changes: dict[HeadPosition, list[Tensor]] = {position: [] for position in positions}
    losses, counts = [], []
    with evaluating(model):
        for batch in batches:
            for position, batch_sums in _statistics(model, batch).items():
                sums[position] += batch_sums
            memory = model.encode(batch.source)
            complete = sentence_losses(model, batch, memory)
            losses.append(complete)
            counts.append((batch.labels != model.vocabulary.pad).sum(dim=1).double().cpu())
            for position in positions:
                with without_head(attention_at(model, position.attention, position.layer), position.head):
                    # The encoder's output does not depend on the decoder's heads.
                    used = model.encode(batch.source) if position.attention == "encoder" else memory
                    changes[position].append(sentence_losses(model, batch, used) - complete)
    tokens = torch.cat(counts)
    heads = [_head(position, sums[position], torch.cat(changes[position]), tokens) for position in positions]
    total = float(tokens.sum())
    return HeadReport(len(tokens), int(total), float(torch.cat(losses).sum()) / total, heads)


def sentence_losses(model: Transformer, batch: Batch, memory: Memory) -> Tensor:
    """Return the negative log-likelihood of each sentence's labels in nats, (batch,)."""
    is_token = batch.labels != model.vocabulary.pad
    hidden = model.decode(batch.target, memory)[is_token]  # padding is never projected
    losses = F.cross_entropy(model.output.logits(hidden).float(), batch.labels[is_token], reduction="none")
    by_position = torch.zeros(is_token.shape, dtype=torch.float64, device=is_token.device)
    by_position[is_token] = losses.double()
    return by_position.sum(dim=1).cpu()


_STATISTICS = ("rows", "entropy", "distance", "diagonal", "previous", "next", "first", "end")


def _statistics(model: Transformer, batch: Batch) -> dict[HeadPosition, Tensor]:
    """Return the sums of `_STATISTICS` over all queries that are not padding, for each head."""
    weights = model.attention(batch.source, batch.target)
    sublayers: list[tuple[Kind, list[Tensor], Tensor, Tensor]] = [
        ("encoder", weights.encoder, batch.source, batch.source),
        ("decoder", weights.decoder, batch.target, batch.target),
        ("encoder_decoder", weights.encoder_decoder, batch.target, batch.source),
    ]
    sums: dict[HeadPosition, Tensor] = {}
    for kind, layers, queries, keys in sublayers:
        is_token = queries != model.vocabulary.pad
        is_end = keys == model.vocabulary.eos
        for number, layer in enumerate(layers):
            for head, head_sums in enumerate(statistic_sums(layer, is_token, is_end)):
                sums[HeadPosition(kind, number, head)] = head_sums
    return sums


def statistic_sums(weights: Tensor, is_token: Tensor, is_end: Tensor) -> Tensor:
    """Sum the statistics over queries: weights (batch, heads, query, key) → (heads, statistics).

    ``is_token`` marks queries that are not padding, (batch, query); ``is_end`` marks eos keys, (batch, key).
    """
    weights = weights.double()
    query, key = weights.shape[-2:]
    offset = torch.arange(key, device=weights.device) - torch.arange(query, device=weights.device)[:, None]
    statistics = [
        torch.ones_like(weights[..., 0]),
        torch.special.entr(weights).sum(dim=-1),
        (weights * offset.abs()).sum(dim=-1),
        *((weights * (offset == wanted)).sum(dim=-1) for wanted in (0, -1, 1)),
        weights[..., 0],
        (weights * is_end[:, None, None]).sum(dim=-1),
    ]
    stacked = (
        torch.stack(statistics, dim=-1) * is_token[:, None, :, None]
    )  # (batch, heads, query, statistics)
    return stacked.sum(dim=(0, 2)).cpu()


def _head(position: HeadPosition, sums: Tensor, changes: Tensor, tokens: Tensor) -> Head:
    mean = dict(zip(_STATISTICS, (sums / sums[0]).tolist(), strict=True))
    is_self_attention = position.attention != "encoder_decoder"
    change = float(changes.sum() / tokens.sum())
    # The standard error of a ratio of sums: each sentence contributes its change and its tokens.
    spread, count = float((changes - change * tokens).square().sum().sqrt() / tokens.sum()), len(tokens)
    return Head(
        attention=position.attention,
        layer=position.layer + 1,
        head=position.head + 1,
        entropy=mean["entropy"],
        distance=mean["distance"] if is_self_attention else None,
        diagonal=mean["diagonal"] if is_self_attention else None,
        previous=mean["previous"] if is_self_attention else None,
        next=mean["next"] if position.attention == "encoder" else None,
        first=mean["first"],
        end=None if position.attention == "decoder" else mean["end"],
        loss_change=change,
        loss_error=spread * math.sqrt(count / (count - 1)) if count > 1 else None,
    )
