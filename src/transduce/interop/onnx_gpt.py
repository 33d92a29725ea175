"""GPT as one ONNX network, ``decoder.onnx``: prompts of any lengths, then token after token with a cache.

It reads ``tokens`` (batch, length), ``token_mask`` (batch, length), ``False`` where a shorter text has
padding (before or after its tokens), and what it has read before: ``past_mask`` (batch, past) and, for every
layer, ``past_key_0``, ``past_value_0``, … (batch, key/value heads, past, d_k), all empty at first. It returns
``logits`` (batch, length, vocabulary) and the next past: ``mask``, ``key_0``, ``value_0``, … Positions are
counted without padding.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from transduce.interop.onnx_graph import Interface, Table, attend, layer_names
from transduce.models.gpt import GPT
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.positional import RotaryPositions, rotations, sinusoids


class _RotaryTable(nn.Module):
    """Rotate x, (batch, heads, length, d_k), at positions (batch, length)."""

    def __init__(self, rotary: RotaryPositions, length: int) -> None:
        super().__init__()
        self.rotary, self.table = rotary, Table(rotations(length, rotary.d_rotated, rotary.base))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.rotary.rotate(x, self.table.at(positions)[:, None])


class TextGraph(nn.Module):
    """The network of the file."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model, config = copy.deepcopy(model).float().cpu().eval(), model.config
        if config.positions == "learned":
            self.model.positions = Table(self.model.positions.weight)  # type: ignore[assignment, arg-type]
        elif config.positions == "sinusoidal":
            self.model.positions = Table(sinusoids(config.max_length, config.d_model))  # type: ignore[assignment]
        shared: nn.Module | None = None  # one table for all layers
        for layer in self.model.decoder.layers:
            attention = layer.self_attention
            if isinstance(attention, FullSelfAttention) and attention.rotary is not None:
                shared = shared or _RotaryTable(attention.rotary, config.max_length)
                attention.rotary = shared  # type: ignore[assignment]

    def forward(
        self, tokens: Tensor, token_mask: Tensor, past_mask: Tensor, past: list[Tensor]
    ) -> list[Tensor]:
        """Return logits, the mask of all positions, and the keys and values of all layers."""
        model = self.model
        read = past_mask.long().sum(dim=1, keepdim=True)
        positions = (read + token_mask.long().cumsum(dim=1) - 1).clamp(min=0)
        mask = torch.cat((past_mask, token_mask), dim=1)
        # A key may be attended to if it is not after the query: (length, past + length)
        order = torch.arange(mask.shape[1], device=mask.device)
        causal = order[None] <= order[past_mask.shape[1] :, None]
        visible = causal & mask[:, None, None]
        x = model.positions(model.embedding(tokens), positions)
        grown: list[Tensor] = []
        for number, layer in enumerate(model.decoder.layers):
            attention, old = layer.self_attention, past[2 * number : 2 * number + 2]
            assert isinstance(attention, FullSelfAttention)  # noqa: S101

            def look_back(
                y: Tensor, attention: FullSelfAttention = attention, old: list[Tensor] = old
            ) -> Tensor:
                query, *new = attention.project(y, positions)
                both = [torch.cat(parts, dim=2) for parts in zip(old, new, strict=True)]
                grown.extend(both)
                key, value = (attention.for_every_head(part) for part in both)
                return attend(attention, query, key, value, visible)

            x = layer.around_self_attention(x, look_back)
            x = layer.around_feed_forward(x, layer.feed_forward)
        return [model.output.logits(model.decoder.final_norm(x)), mask, *grown]


def text_interface(model: GPT) -> Interface:
    """Return the inputs and outputs of the network."""
    layers, widths = model.config.layers, _widths(model)
    batch, length, past = (torch.export.Dim(name) for name in ("batch", "length", "past"))
    examples = (
        torch.full((2, 4), model.vocabulary.eos),
        torch.ones(2, 4, dtype=torch.bool),
        torch.ones(2, 3, dtype=torch.bool),
        [torch.zeros(2, heads, 3, width) for heads, width in widths],
    )
    dimensions = (
        {0: batch, 1: length},
        {0: batch, 1: length},
        {0: batch, 1: past},
        [{0: batch, 2: past} for _ in widths],
    )
    inputs = ["tokens", "token_mask", "past_mask", *layer_names("past_", layers)]
    return Interface(examples, dimensions, inputs, ["logits", "mask", *layer_names("", layers)])


def text_fields(model: GPT) -> dict[str, Any]:
    """Return the sizes in ``config.json``."""
    (heads, d_k), (_, d_v) = _widths(model)[:2]
    return {
        "family": "gpt",
        "layers": model.config.layers,
        "key_value_heads": heads,
        "d_k": d_k,
        "d_v": d_v,
        "max_length": model.config.max_length,
    }


def _widths(model: GPT) -> list[tuple[int, int]]:
    """Return the heads and the width of keys and values, for every layer."""
    config = model.config
    heads, d_v = config.key_value_heads or config.heads, config.d_v or config.d_model // config.heads
    return [(heads, config.key_width), (heads, d_v)] * config.layers
