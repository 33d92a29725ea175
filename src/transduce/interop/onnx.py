"""Export to ONNX: ``encoder.onnx``, and ``decoder.onnx`` for one position with keys and values of the past.

The encoder reads ``source`` (batch, source) and returns ``memory_mask`` (batch, source) and, for every layer
of the decoder, ``memory_key_0``, ``memory_value_0``, … (batch, heads, source, d_k), computed once per
sentence. The decoder reads ``tokens`` (batch,), all of these, and ``past_key_0``, ``past_value_0``, …
(batch, heads, past, d_k), which are empty at first; it returns ``logits`` (batch, tokens) and ``key_0``,
``value_0``, …: the next past.
All batches and lengths are dynamic.
"""

import copy
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError, DependencyError
from transduce.interop.onnx_rounding import PACKAGES, quiet, round_matrices
from transduce.models.transformer import Transformer
from transduce.nn.multi_head_attention import FullSelfAttention, MultiHeadAttention
from transduce.nn.positional import RotaryPositions, rotations, sinusoids

ENCODER, DECODER, CONFIG = "encoder.onnx", "decoder.onnx", "config.json"
POSITIONS = 2048  # the table of positions in the files is limited, ours is not
_LARGEST = 1_900_000_000  # bytes of a single file; weights of larger models are in a second one


def export_onnx(
    model: Transformer,
    folder: Path,
    tokenizer: TokenizerPair | None = None,
    *,
    quantization: str | None = None,
    positions: int = POSITIONS,
) -> None:
    """Write a new folder with both networks, the tokenizer, and ``config.json`` with its special tokens."""
    _check(model.config)
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        raise DependencyError(f"the export needs {error.name}, which is not installed", PACKAGES) from error
    del onnx, onnxscript  # torch uses them
    fixed, limit = _with_tables(model, positions)
    folder.mkdir(parents=True)
    _export(_EncoderGraph(fixed), folder / ENCODER, *_encoder_inputs(fixed))
    _export(_DecoderGraph(fixed), folder / DECODER, *_decoder_inputs(fixed))
    if quantization == "int8":
        for name in (ENCODER, DECODER):
            round_matrices(folder / name)
    fields = {
        "layers": model.config.decoder_layers,
        "heads": model.config.heads,
        "d_k": model.config.d_k or model.config.d_model // model.config.heads,
        "d_v": model.config.d_v or model.config.d_model // model.config.heads,
        "max_length": limit,
        **model.vocabulary.model_dump(),
    }
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    if tokenizer is not None:
        tokenizer.save(folder)


def _check(config: TransformerConfig) -> None:
    for name, fits, what in (
        ("attention.kind", config.attention.kind == "full", config.attention.kind),
        ("source_factors", not config.source_factors, config.source_factors),
        ("decoder", config.decoder == "attention", config.decoder),
    ):
        if not fits:
            raise ConfigError(
                f"a model with {name} = {what!r} cannot be exported to ONNX", "use transduce translate"
            )


class _Table(nn.Module):
    """Add rows of a table to x, (batch, length, d_model), whose first position is ``start``."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table.detach())

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.get(start, start + x.shape[1], x)

    def get(self, start: int, end: int, like: Tensor) -> Tensor:
        """Return rows ``start`` to ``end``, as tables inside of positions do."""
        rows = torch.arange(start, end, device=like.device)
        table: Tensor = self.table  # type: ignore[assignment]
        return table.index_select(0, rows)


def _with_tables(model: Transformer, positions: int) -> tuple[Transformer, int]:
    """Return a copy whose positions are tables of a fixed length, and that length."""
    config, fixed = model.config, copy.deepcopy(model).float().cpu().eval()
    limit = config.max_length if config.positions == "learned" else positions
    for name in ("source_positions", "target_positions"):
        if config.positions == "learned":
            setattr(fixed, name, _Table(getattr(fixed, name).weight))
        elif config.positions == "sinusoidal":
            layout, spacing = config.sine_layout, config.sine_spacing
            rows = sinusoids(
                limit, config.d_model, start=config.first_position, layout=layout, spacing=spacing
            )
            setattr(fixed, name, _Table(rows))
    for module in fixed.modules():
        if isinstance(module, RotaryPositions):
            module._rows = _Table(rotations(limit, module.d_rotated))  # type: ignore[assignment]
    return fixed, limit


def _attend(
    attention: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """Attend as the equation says, without choices that depend on sizes."""
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(attention.d_k))
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min)
    return attention.join_heads(scores.softmax(dim=-1) @ value)


class _EncoderGraph(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> list[Tensor]:
        mask = self.model.source_mask(source)
        x = self.model.embed_source(source)
        for layer in self.model.encoder.layers:
            attention = layer.self_attention
            assert isinstance(attention, FullSelfAttention)  # noqa: S101

            def attend(y: Tensor, attention: FullSelfAttention = attention) -> Tensor:
                query, key, value = attention.project(y)
                return _attend(attention, query, key, value, mask)

            x = layer.around_self_attention(x, attend)
            x = layer.around_feed_forward(x, layer.feed_forward)
        memory = self.model.encoder.final_norm(x)
        found = [mask]
        for decoder_layer in self.model.decoder.layers:
            found += decoder_layer.memory_attention.keys_values(memory)
        return found


class _DecoderGraph(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor, memory: list[Tensor], past: list[Tensor]) -> list[Tensor]:
        start = past[0].shape[2]
        x = self.model.embed_target(tokens[:, None], start)
        grown: list[Tensor] = []
        for number, layer in enumerate(self.model.decoder.layers):
            at = slice(2 * number, 2 * number + 2)
            attention, cross = layer.self_attention, layer.memory_attention
            assert isinstance(attention, FullSelfAttention)  # noqa: S101

            def attend(y: Tensor, attention: FullSelfAttention = attention, at: slice = at) -> Tensor:
                query, *new = attention.project(y, start)
                both = [torch.cat((old, one), dim=2) for old, one in zip(past[at], new, strict=True)]
                grown.extend(both)
                return _attend(attention, query, both[0], both[1], None)

            x = layer.around_self_attention(x, attend)
            key, value = memory[at]
            x = layer.around_memory_attention(
                x, lambda y, a=cross, k=key, v=value: _attend(a, a.split_heads(a.query(y)), k, v, mask)
            )
            x = layer.around_feed_forward(x, layer.feed_forward)
        decoded = self.model.decoder.final_norm(x)
        return [self.model.output.logits(decoded[:, 0]), *grown]


def _names(prefix: str, layers: int) -> list[str]:
    return [f"{prefix}{kind}_{number}" for number in range(layers) for kind in ("key", "value")]


Inputs = tuple[tuple[Any, ...], tuple[Any, ...], list[str], list[str]]  # examples, dimensions, names


def _encoder_inputs(model: Transformer) -> Inputs:
    batch, source = torch.export.Dim("batch"), torch.export.Dim("source")
    outputs = ["memory_mask", *_names("memory_", model.config.decoder_layers)]
    return (torch.full((2, 5), model.vocabulary.eos),), ({0: batch, 1: source},), ["source"], outputs


def _decoder_inputs(model: Transformer) -> Inputs:
    layers = model.config.decoder_layers
    batch, source, past = (torch.export.Dim(name) for name in ("batch", "source", "past"))
    attention = model.decoder.layers[0].memory_attention
    widths = [attention.d_k, attention.d_v] * layers
    examples = (
        torch.full((2,), model.vocabulary.eos),
        torch.ones(2, 5, dtype=torch.bool),
        [torch.zeros(2, attention.heads, 5, width) for width in widths],
        [torch.zeros(2, attention.heads, 3, width) for width in widths],
    )
    dimensions = (
        {0: batch},
        {0: batch, 1: source},
        [{0: batch, 2: source} for _ in widths],
        [{0: batch, 2: past} for _ in widths],
    )
    inputs = ["tokens", "memory_mask", *_names("memory_", layers), *_names("past_", layers)]
    return examples, dimensions, inputs, ["logits", *_names("", layers)]


def _export(
    graph: nn.Module,
    path: Path,
    examples: tuple[Any, ...],
    dimensions: tuple[Any, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    size = sum(parameter.numel() * 4 for parameter in graph.parameters())
    with quiet(), torch.no_grad():
        torch.onnx.export(
            graph.eval(),
            examples,
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=dimensions,
            dynamo=True,
            verbose=False,
            external_data=size > _LARGEST,
        )
