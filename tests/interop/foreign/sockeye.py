"""Models of Sockeye 3: a folder with ``config``, ``params.best``, ``vocab.src.0.json``, ``vocab.trg.0.json``.

``config`` is YAML with tags (``!ModelConfig``, ``!TransformerConfig``, …). ``params.best`` is a pickled state
dict, also with tied tensors and position tables. Keys and values are stored **interleaved by head**: the rows
of ``ff_kv.weight`` are (head, key or value, dimension of the head), and ``ff_in.weight`` is the queries
followed by such rows. Attention has no biases, feed-forward and output layers do. ``preprocess_sequence: n``
with ``postprocess_sequence: dr`` is pre-norm, '' with ``drn`` post-norm; final norms exist if
``preprocess_sequence`` has an n. Embeddings × √d; sines before cosines, denominator d/2. Source: tokens and
``</s>``; starts with ``<s>``.

Checked against sockeye 3.1.34, which loads these folders: logits differ by at most 1.2e-6.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from foreign import plain
from foreign.plain import OTHER_PIECES, PIECES, RandomState
from torch import Tensor

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
PAD, BOS, EOS = 0, 2, 3
MAX_LENGTH = 64


@dataclass(frozen=True)
class Shape:
    """The options of a small model."""

    encoder_layers: int = 2
    decoder_layers: int = 1
    width: int = 24
    heads: int = 3
    hidden: int = 40
    activation: str = "relu"  # gelu, swish1
    is_gated: bool = False
    pre: str = "n"
    post: str = "dr"
    positions: str = "fixed"  # learned
    decoder: str = "transformer"  # ssru_transformer
    uses_lhuc: bool = False
    tying: str = "src_trg_softmax"  # src_trg, trg_softmax, none
    share_vocabulary: bool = True


VARIANTS = {
    "pre": Shape(),
    "post-separate": Shape(pre="", post="drn", tying="none", share_vocabulary=False),
    "pre-swish-trg_softmax": Shape(activation="swish1", tying="trg_softmax", share_vocabulary=False),
    "pre-gelu-src_trg": Shape(activation="gelu", tying="src_trg"),
    "pre-and-post": Shape(pre="n", post="drn"),
    "learned": Shape(positions="learned"),
    "gated": Shape(is_gated=True, activation="swish1"),
    "ssru": Shape(decoder="ssru_transformer"),
    "lhuc": Shape(uses_lhuc=True),
}


def vocabularies(shape: Shape) -> tuple[list[str], list[str]]:
    """Return the source and the target tokens."""
    return SPECIAL + PIECES, SPECIAL + (PIECES if shape.share_vocabulary else OTHER_PIECES)


def write(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Write a random model."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = vocabularies(shape)
    for name, tokens in (("vocab.src.0.json", source), ("vocab.trg.0.json", target)):
        ids = {token: n for n, token in enumerate(tokens)}
        (folder / name).write_text(json.dumps(ids, indent=4, ensure_ascii=False), encoding="utf-8")
    (folder / "config").write_text(_config(shape, len(source), len(target)), encoding="utf-8")
    (folder / "version").write_text("3.1.34", encoding="utf-8")
    torch.save(dict(_state(shape, len(source), len(target), seed)), folder / "params.best")


def _config(shape: Shape, sources: int, targets: int) -> str:
    def tagged(tag: str, fields: dict[str, Any]) -> str:
        body = yaml.safe_dump(fields, default_flow_style=False)
        return f"!{tag}\n" + "".join(f"  {line}\n" for line in body.splitlines())

    def stack(layers: int, decoder: str) -> str:
        fields = {
            "act_type": shape.activation,
            "attention_heads": shape.heads,
            "block_prepended_cross_attention": False,
            "decoder_type": decoder,
            "depth_key_value": shape.width,
            "dropout_act": 0.1,
            "dropout_attention": 0.1,
            "dropout_prepost": 0.1,
            "feed_forward_num_hidden": shape.hidden,
            "max_seq_len_source": MAX_LENGTH,
            "max_seq_len_target": MAX_LENGTH,
            "model_size": shape.width,
            "num_layers": layers,
            "positional_embedding_type": shape.positions,
            "postprocess_sequence": shape.post,
            "preprocess_sequence": shape.pre,
            "use_glu": shape.is_gated,
            "use_lhuc": shape.uses_lhuc,
        }
        return tagged("TransformerConfig", fields)

    def embedding(size: int) -> str:
        fields = {
            "allow_sparse_grad": False,
            "dropout": 0.0,
            "factor_configs": None,
            "num_embed": shape.width,
        }
        return tagged("EmbeddingConfig", {**fields, "num_factors": 1, "vocab_size": size})

    data = {"data_statistics": None, "eop_id": -1, "max_seq_len_source": MAX_LENGTH}
    data |= {"max_seq_len_target": MAX_LENGTH, "num_source_factors": 1, "num_target_factors": 1}
    rest = {
        "config_length_task": None,
        "dtype": "float32",
        "lhuc": shape.uses_lhuc,
        "neural_vocab_selection": None,
        "neural_vocab_selection_block_loss": False,
        "vocab_source_size": sources,
        "vocab_target_size": targets,
        "weight_tying_type": shape.tying,
    }
    return (
        "!ModelConfig\n"
        f"config_data: {tagged('DataConfig', data)}"
        f"config_decoder: {stack(shape.decoder_layers, shape.decoder)}"
        f"config_embed_source: {embedding(sources)}"
        f"config_embed_target: {embedding(targets)}"
        f"config_encoder: {stack(shape.encoder_layers, 'transformer')}"
        f"{yaml.safe_dump(rest, default_flow_style=False)}"
    )


def _state(shape: Shape, sources: int, targets: int, seed: int) -> RandomState:
    state, width = RandomState(seed), shape.width
    source = state.random(sources, width)
    target = source if {"src", "trg"} <= set(shape.tying.split("_")) else state.random(targets, width)
    state["embedding_source.embedding.weight"] = source
    state["embedding_target.embedding.weight"] = target
    for stack, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        learned = shape.positions == "learned"
        table = state.random(MAX_LENGTH, width) if learned else positions(MAX_LENGTH, width)
        state[f"{stack}.pos_embedding.weight"] = table
        for n in range(layers):
            _fill_layer(state, shape, f"{stack}.layers.{n}", stack == "decoder")
        if "n" in shape.pre:
            state.norm(f"{stack}.final_process.layer_norm", width)
    tied = "softmax" in shape.tying
    state["output_layer.weight"] = target if tied else state.random(targets, width)
    state["output_layer.bias"] = state.random(targets)
    return state


def _fill_layer(state: RandomState, shape: Shape, layer: str, is_decoder: bool) -> None:
    width, own = shape.width, "autoregr_layer" if is_decoder else "self_attention"
    if is_decoder and shape.decoder == "ssru_transformer":
        state.linear(f"{layer}.{own}.forget_gate", width, width)
        state.linear(f"{layer}.{own}.linear", width, width, bias=False)
    else:
        state.linear(f"{layer}.{own}.ff_out", width, width, bias=False)
        state.linear(f"{layer}.{own}.ff_in", width, 3 * width, bias=False)
    if is_decoder:
        for part, rows in (("ff_out", width), ("ff_q", width), ("ff_kv", 2 * width)):
            state.linear(f"{layer}.enc_attention.{part}", width, rows, bias=False)
    state.linear(f"{layer}.ff.ff1", width, shape.hidden)
    state.linear(f"{layer}.ff.ff2", shape.hidden, width)
    if shape.is_gated:
        state.linear(f"{layer}.ff.linear", width, shape.hidden)
    for part in (own, "enc_attention", "ff") if is_decoder else (own, "ff"):
        for place, sequence in (("pre", shape.pre), ("post", shape.post)):
            if "n" in sequence:
                state.norm(f"{layer}.{place}_{part}.layer_norm", width)
    if shape.uses_lhuc:
        state[f"{layer}.lhuc.weight"] = state.random(width)


def positions(length: int, width: int) -> Tensor:
    """Return sines before cosines (length, width), rounded as Sockeye rounds them."""
    angles = torch.arange(length)[:, None] / torch.pow(10000, 2 * torch.arange(width // 2) / width)
    return torch.hstack((angles.sin(), angles.cos()))


class _AnyTag(yaml.SafeLoader):
    """A loader that reads every tagged mapping as a dictionary."""


_AnyTag.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_mapping(node, deep=True))


def logits(folder: Path, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of each target position, as Sockeye computes them.

    ``source`` (batch, source) is padded with 0 at the end; ``target`` (batch, target) begins with the start
    token.
    """
    config = yaml.load((folder / "config").read_text(encoding="utf-8"), _AnyTag)
    state = torch.load(folder / "params.best", weights_only=True)

    def process(sequence: str, name: str, x: Tensor, before: Tensor | None = None) -> Tensor:
        for step in sequence:
            if step == "r":
                assert before is not None
                x = x + before
            elif step == "n":
                x = plain.layer_norm(state, f"{name}.layer_norm", x, 1e-6)
        return x

    def attention(name: str, query: Tensor, both: Tensor, mask: Tensor, heads: int) -> Tensor:
        rows = both.unflatten(-1, (heads, 2, -1))  # interleaved by head
        attended = plain.attend(query, rows[..., 0, :].flatten(2), rows[..., 1, :].flatten(2), heads, mask)
        return plain.linear(state, f"{name}.ff_out", attended)

    def self_attention(name: str, x: Tensor, mask: Tensor, heads: int) -> Tensor:
        width = x.shape[-1]
        query, both = plain.linear(state, f"{name}.ff_in", x).split((width, 2 * width), -1)
        return attention(name, query, both, mask, heads)

    def recurrent(name: str, x: Tensor) -> Tensor:
        forget = plain.linear(state, f"{name}.forget_gate", x).sigmoid()
        inputs, cell, cells = (1 - forget) * plain.linear(state, f"{name}.linear", x), 0 * x[:, 0], []
        for n in range(x.shape[1]):
            cell = forget[:, n] * cell + inputs[:, n]
            cells.append(cell)
        return torch.stack(cells, 1).relu()

    def feed_forward(name: str, x: Tensor, options: dict[str, Any]) -> Tensor:
        hidden = plain.ACTIVATIONS[options["act_type"].rstrip("1")](plain.linear(state, f"{name}.ff1", x))
        if options["use_glu"]:
            hidden = hidden * plain.linear(state, f"{name}.linear", x)
        return plain.linear(state, f"{name}.ff2", hidden)

    def run(stack: str, ids: Tensor, mask: Tensor, memory: tuple[Tensor, Tensor] | None) -> Tensor:
        options = config[f"config_{stack}"]
        pre, post, heads = (
            options[name] for name in ("preprocess_sequence", "postprocess_sequence", "attention_heads")
        )
        side = "source" if memory is None else "target"
        x = math.sqrt(options["model_size"]) * state[f"embedding_{side}.embedding.weight"][ids]
        x = x + state[f"{stack}.pos_embedding.weight"][: ids.shape[1]]
        own = "self_attention" if memory is None else "autoregr_layer"
        for layer in (f"{stack}.layers.{n}" for n in range(options["num_layers"])):
            y = process(pre, f"{layer}.pre_{own}", x)
            if memory is not None and options["decoder_type"] == "ssru_transformer":
                y = recurrent(f"{layer}.{own}", y)
            else:
                y = self_attention(f"{layer}.{own}", y, mask, heads)
            x = process(post, f"{layer}.post_{own}", y, x)
            if memory is not None:
                cross = f"{layer}.enc_attention"
                y = plain.linear(state, f"{cross}.ff_q", process(pre, f"{layer}.pre_enc_attention", x))
                both = plain.linear(state, f"{cross}.ff_kv", memory[0])
                y = attention(cross, y, both, memory[1], heads)
                x = process(post, f"{layer}.post_enc_attention", y, x)
            y = feed_forward(f"{layer}.ff", process(pre, f"{layer}.pre_ff", x), options)
            x = process(post, f"{layer}.post_ff", y, x)
            if options["use_lhuc"]:
                x = 2 * state[f"{layer}.lhuc.weight"].sigmoid() * x
        return process(pre, f"{stack}.final_process", x)

    keys = plain.key_mask(source, PAD)
    memory = run("encoder", source, keys, None)
    x = run("decoder", target, plain.causal_mask(target), (memory, keys))
    return plain.linear(state, "output_layer", x)
