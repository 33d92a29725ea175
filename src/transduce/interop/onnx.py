"""Export to ONNX: ``encoder.onnx``, and ``decoder.onnx`` for one position with what is known of the past.

The encoder reads ``source`` (batch, source) and returns ``memory_mask`` (batch, source) and, for every layer
of the decoder, ``memory_key_0``, ``memory_value_0``, … (batch, heads, source, d_k), computed once per
sentence. The decoder reads ``tokens`` (batch,), all of these, and ``past_key_0``, ``past_value_0``, …
(batch, heads, past, d_k), which are empty at first; it returns ``logits`` (batch, tokens) and ``key_0``,
``value_0``, …: the next past. An SSRU decoder remembers ``past_state_0``, … (batch, d_model), zeros at first,
and ``past_position`` (batch,), 0 at first; it returns ``state_0``, …, and ``position``.
A GPT is a single ``decoder.onnx``; see `transduce.interop.onnx_gpt`. All batches and lengths are dynamic.
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError
from transduce.interop.onnx_gpt import TextGraph, text_fields, text_interface
from transduce.interop.onnx_graph import Interface, Table, attend, layer_names, require_packages, write_graph
from transduce.interop.onnx_rounding import round_matrices
from transduce.models.gpt import GPT
from transduce.models.transformer import Transformer
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.positional import RotaryPositions, rotations, sinusoids
from transduce.nn.ssru import SSRU

ENCODER, DECODER, CONFIG = "encoder.onnx", "decoder.onnx", "config.json"
POSITIONS = 2048  # the table of positions in the files is limited, ours is not


def export_onnx(
    model: Transformer | GPT,
    folder: Path,
    tokenizer: TokenizerPair | None = None,
    *,
    quantization: str | None = None,
    positions: int = POSITIONS,
) -> None:
    """Write a new folder with the networks, the tokenizer, and ``config.json`` with its special tokens.

    Sinusoidal and rotary ``positions`` of a Transformer are limited in the files.
    """
    if isinstance(model, Transformer):
        _check(model.config)
    require_packages()
    folder.mkdir(parents=True)
    if isinstance(model, GPT):
        fields, networks = text_fields(model), [DECODER]
        write_graph(TextGraph(model), folder / DECODER, text_interface(model))
    else:
        fixed, limit = _with_tables(model, positions)
        fields, networks = {**_fields(model.config), "max_length": limit}, [ENCODER, DECODER]
        write_graph(_EncoderGraph(fixed), folder / ENCODER, _encoder_interface(fixed))
        write_graph(_DecoderGraph(fixed), folder / DECODER, _decoder_interface(fixed))
    if quantization == "int8":
        for name in networks:
            round_matrices(folder / name)
    fields |= model.vocabulary.model_dump()
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    if tokenizer is not None:
        tokenizer.save(folder)


def _fields(config: TransformerConfig) -> dict[str, Any]:
    width = config.d_model // config.heads
    return {
        "family": "transformer",
        "decoder": config.decoder,
        "layers": config.decoder_layers,
        "d_model": config.d_model,
        "heads": config.heads,
        "d_k": config.d_k or width,
        "d_v": config.d_v or width,
    }


def _check(config: TransformerConfig) -> None:
    for name, fits, what in (
        ("attention.kind", config.attention.kind == "full", config.attention.kind),
        ("source_factors", not config.source_factors, config.source_factors),
    ):
        if not fits:
            raise ConfigError(
                f"a model with {name} = {what!r} cannot be exported to ONNX", "use transduce translate"
            )


def _with_tables(model: Transformer, positions: int) -> tuple[Transformer, int]:
    """Return a copy whose positions are tables of a fixed length, and that length."""
    config, fixed = model.config, copy.deepcopy(model).float().cpu().eval()
    limit = config.max_length if config.positions == "learned" else positions
    for name in ("source_positions", "target_positions"):
        if config.positions == "learned":
            setattr(fixed, name, Table(getattr(fixed, name).weight))
        elif config.positions == "sinusoidal":
            layout, spacing = config.sine_layout, config.sine_spacing
            rows = sinusoids(
                limit, config.d_model, start=config.first_position, layout=layout, spacing=spacing
            )
            setattr(fixed, name, Table(rows))
    for module in fixed.modules():
        if isinstance(module, RotaryPositions):
            module._rows = Table(rotations(limit, module.d_rotated, module.base))  # type: ignore[assignment]
    return fixed, limit


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

            def look_around(y: Tensor, attention: FullSelfAttention = attention) -> Tensor:
                query, key, value = attention.project(y)
                return attend(attention, query, key, value, mask[:, None, None])

            x = layer.around_self_attention(x, look_around)
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

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor,
        memory: list[Tensor],
        past: list[Tensor],
        position: Tensor | None = None,
    ) -> list[Tensor]:
        """Return logits and the next past; without attention to the past, nothing else tells the position."""
        start = past[0].shape[2] if position is None else position[:, None]
        x = self.model.embed_target(tokens[:, None], start)  # type: ignore[arg-type]
        visible, grown = mask[:, None, None], list[Tensor]()
        for number, layer in enumerate(self.model.decoder.layers):
            at = slice(2 * number, 2 * number + 2)
            reader, cross = layer.self_attention, layer.memory_attention

            def look_back(y: Tensor, reader: nn.Module = reader, at: slice = at) -> Tensor:
                if isinstance(reader, SSRU):
                    gate, candidate = reader.gates(y)
                    state = gate * past[at.start // 2][:, None] + candidate
                    grown.append(state[:, 0])
                    return torch.relu(state)
                assert isinstance(reader, FullSelfAttention)  # noqa: S101
                query, *new = reader.project(y, start)
                both = [torch.cat((old, one), dim=2) for old, one in zip(past[at], new, strict=True)]
                grown.extend(both)
                return attend(reader, query, both[0], both[1], None)

            x = layer.around_self_attention(x, look_back)
            key, value = memory[at]
            x = layer.around_memory_attention(
                x, lambda y, a=cross, k=key, v=value: attend(a, a.split_heads(a.query(y)), k, v, visible)
            )
            x = layer.around_feed_forward(x, layer.feed_forward)
        logits = self.model.output.logits(self.model.decoder.final_norm(x)[:, 0])
        return [logits, *grown, *([] if position is None else [position + 1])]


def _encoder_interface(model: Transformer) -> Interface:
    batch, source = torch.export.Dim("batch"), torch.export.Dim("source")
    outputs = ["memory_mask", *layer_names("memory_", model.config.decoder_layers)]
    example = torch.full((2, 5), model.vocabulary.eos)
    return Interface((example,), ({0: batch, 1: source},), ["source"], outputs)


def _decoder_interface(model: Transformer) -> Interface:
    layers, is_recurrent = model.config.decoder_layers, model.config.decoder == "ssru"
    batch, source, past = (torch.export.Dim(name) for name in ("batch", "source", "past"))
    attention = model.decoder.layers[0].memory_attention
    widths = [attention.d_k, attention.d_v] * layers
    examples: list[Any] = [
        torch.full((2,), model.vocabulary.eos),
        torch.ones(2, 5, dtype=torch.bool),
        [torch.zeros(2, attention.heads, 5, width) for width in widths],
    ]
    dimensions: list[Any] = [{0: batch}, {0: batch, 1: source}, [{0: batch, 2: source} for _ in widths]]
    if is_recurrent:
        examples += [[torch.zeros(2, model.config.d_model) for _ in range(layers)], torch.tensor([3, 4])]
        dimensions += [[{0: batch} for _ in range(layers)], {0: batch}]
        outputs = [*layer_names("", layers, ["state"]), "position"]
    else:
        examples.append([torch.zeros(2, attention.heads, 3, width) for width in widths])
        dimensions.append([{0: batch, 2: past} for _ in widths])
        outputs = layer_names("", layers)
    inputs = ["tokens", "memory_mask", *layer_names("memory_", layers), *(f"past_{name}" for name in outputs)]
    return Interface(tuple(examples), tuple(dimensions), inputs, ["logits", *outputs])
