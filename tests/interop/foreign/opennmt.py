"""Models of OpenNMT-py 2 and 3, as its `ModelSaver` writes them: one pickled dictionary.

``model`` (a dict of tensors), ``generator`` (an OrderedDict: ``weight`` and ``bias``; version 2:
``0.weight``, ``0.bias``), ``vocab``, ``opt`` (an `argparse.Namespace`), ``optim``. ``vocab`` is a dict of
lists in version 3, and pickled fields of torchtext in version 2. Always pre-norm with a final norm on both
stacks; embeddings × √d. The source has no end token; the decoder starts with ``decoder_start_token``
(``<s>``).

Checked against OpenNMT-py 3.5.1 and 2.3.0, which load these files: logits differ by at most 1e-6, and the
position tables by nothing.
"""

import argparse
import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from foreign import plain
from foreign.opennmt_fields import pickled_fields, stand_ins
from foreign.plain import OTHER_PIECES, PIECES, RandomState
from torch import Tensor

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
PAD, BOS, EOS = 1, 2, 3
GATED = ("silu", "gated-gelu")  # in OpenNMT-py, silu is a gated layer (SwiGLU)


@dataclass(frozen=True)
class Shape:
    """The options of a small model."""

    version: int = 3
    encoder_layers: int = 2
    decoder_layers: int = 1
    width: int = 24
    heads: int = 3
    hidden: int = 40
    activation: str = "relu"
    positions: str = "SinusoidalInterleaved"
    norm: str = "standard"
    attention_bias: bool = True
    ffn_bias: bool = True
    share_vocabulary: bool = True
    share_embeddings: bool = True
    tie_output: bool = True


VARIANTS = {
    "v3": Shape(),
    "v3-default-biases": Shape(attention_bias=False, ffn_bias=False),
    "v3-gelu-concat-separate": Shape(
        activation="gelu",
        positions="SinusoidalConcat",
        share_vocabulary=False,
        share_embeddings=False,
        tie_output=False,
    ),
    "v3-tied-output-only": Shape(share_embeddings=False, ffn_bias=False),
    "v3-gated-rms": Shape(activation="silu", norm="rms", attention_bias=False, ffn_bias=False),
    "v3-gated-gelu": Shape(activation="gated-gelu"),
    "v2": Shape(version=2),
    "v2-gelu-separate": Shape(
        version=2, activation="gelu", share_vocabulary=False, share_embeddings=False, tie_output=False
    ),
}


def vocabularies(shape: Shape) -> tuple[list[str], list[str]]:
    """Return the source and the target tokens."""
    return SPECIAL + PIECES, SPECIAL + (PIECES if shape.share_vocabulary else OTHER_PIECES)


def write(path: Path, shape: Shape, seed: int = 0) -> dict[str, Any]:
    """Write a random model to a ``.pt`` file, and return its content as `logits` takes it."""
    state = RandomState(seed)
    source, target = vocabularies(shape)
    generator = _fill(state, shape, len(source), len(target))
    options = argparse.Namespace(**_options(shape))
    content = {"model": dict(state), "generator": generator, "opt": options, "optim": {}}
    if shape.version == 3:
        vocabulary = {"src": source, "tgt": target, "data_task": "seq2seq", "decoder_start_token": "<s>"}
        torch.save({**content, "vocab": vocabulary}, path)
    else:
        with stand_ins() as classes:
            torch.save({**content, "vocab": pickled_fields(classes, source, target)}, path)
    return content


def _fill(state: RandomState, shape: Shape, sources: int, targets: int) -> OrderedDict[str, Tensor]:
    encoder, decoder = "encoder.embeddings.make_embedding", "decoder.embeddings.make_embedding"
    positions = _positions(shape, 5000)[:, None]
    state[f"{encoder}.emb_luts.0.weight"] = state.random(sources, shape.width)
    state[f"{encoder}.pe.pe"] = positions
    for n in range(shape.encoder_layers):
        layer = f"encoder.transformer.{n}"
        _fill_attention(state, shape, f"{layer}.self_attn")
        _fill_feed_forward(state, shape, f"{layer}.feed_forward")
        state.norm(f"{layer}.layer_norm", shape.width, bias=shape.norm == "standard")
    state.norm("encoder.layer_norm", shape.width, bias=shape.norm == "standard")
    shared = state[f"{encoder}.emb_luts.0.weight"]
    embedding = shared if shape.share_embeddings else state.random(targets, shape.width)
    state[f"{decoder}.emb_luts.0.weight"] = embedding
    state[f"{decoder}.pe.pe"] = positions
    state.norm("decoder.layer_norm", shape.width, bias=shape.norm == "standard")
    for n in range(shape.decoder_layers):
        layer = f"decoder.transformer_layers.{n}"
        for attention in ("self_attn", "context_attn"):
            _fill_attention(state, shape, f"{layer}.{attention}")
        _fill_feed_forward(state, shape, f"{layer}.feed_forward")
        for norm in ("layer_norm_1", "layer_norm_2"):
            state.norm(f"{layer}.{norm}", shape.width, bias=shape.norm == "standard")
    prefix = "" if shape.version == 3 else "0."
    weight = embedding if shape.tie_output else state.random(targets, shape.width)
    return OrderedDict({f"{prefix}weight": weight, f"{prefix}bias": state.random(targets)})


def _fill_attention(state: RandomState, shape: Shape, name: str) -> None:
    for part in ("linear_keys", "linear_values", "linear_query", "final_linear"):
        state.linear(f"{name}.{part}", shape.width, shape.width, bias=shape.attention_bias)


def _fill_feed_forward(state: RandomState, shape: Shape, name: str) -> None:
    state.linear(f"{name}.w_1", shape.width, shape.hidden, bias=shape.ffn_bias)
    state.linear(f"{name}.w_2", shape.hidden, shape.width, bias=shape.ffn_bias)
    state.norm(f"{name}.layer_norm", shape.width, bias=shape.norm == "standard")
    if shape.activation in GATED:
        state.linear(f"{name}.w_3", shape.width, shape.hidden, bias=shape.ffn_bias)


def _options(shape: Shape) -> dict[str, Any]:
    sizes = (
        {"hidden_size": shape.width, "enc_hid_size": shape.width, "dec_hid_size": shape.width}
        if shape.version == 3
        else {"rnn_size": shape.width, "enc_rnn_size": shape.width, "dec_rnn_size": shape.width}
    )
    version_3 = {
        "position_encoding_type": shape.positions,
        "layer_norm": shape.norm,
        "norm_eps": 1e-6,
        "add_qkvbias": shape.attention_bias,
        "add_ffnbias": shape.ffn_bias,
        "num_kv": 0,
        "parallel_residual": False,
        "shared_layer_norm": False,
        "relative_positions_buckets": 0,
        "num_experts": 0,
        "sliding_window": 0,
        "lora_layers": [],
        "lora_embedding": False,
        "quant_layers": [],
        "decoder_start_token": "<s>",
        "use_ckpting": [],
        "parallel_mode": "data_parallel",
        "rotary_interleave": False,
        "rotary_theta": 10000,
        "rotary_dim": 0,
        "num_experts_per_tok": 2,
    }
    return {
        **sizes,
        **(version_3 if shape.version == 3 else {}),
        "model_task": "seq2seq",
        "model_type": "text",
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "layers": -1,
        "enc_layers": shape.encoder_layers,
        "dec_layers": shape.decoder_layers,
        "heads": shape.heads,
        "transformer_ff": shape.hidden,
        "src_word_vec_size": shape.width,
        "tgt_word_vec_size": shape.width,
        "word_vec_size": shape.width,
        "pos_ffn_activation_fn": shape.activation,
        "position_encoding": True,
        "max_relative_positions": 0,
        "self_attn_type": "scaled-dot",
        "share_vocab": shape.share_vocabulary,
        "share_embeddings": shape.share_embeddings,
        "share_decoder_embeddings": shape.tie_output,
        "copy_attn": False,
        "generator_function": "softmax",
        "feat_merge": "concat",
        "feat_vec_size": -1,
        "feat_vec_exponent": 0.7,
        "freeze_word_vecs_enc": False,
        "freeze_word_vecs_dec": False,
        "optim": "adam",
        "input_feed": 1,
        "world_size": 1,
        "coverage_attn": False,
        "lambda_align": 0.0,
        "alignment_layer": -3,
        "alignment_heads": 0,
        "full_context_alignment": False,
        "aan_useffn": False,
        "dropout": [0.1],
        "attention_dropout": [0.1],
        "transforms": [],
        "src_subword_model": None,
        "tgt_subword_model": None,
        "src_subword_type": "none",
        "tgt_subword_type": "none",
        "src_onmttok_kwargs": "{'mode': 'none'}",
        "tgt_onmttok_kwargs": "{'mode': 'none'}",
    }


def _positions(shape: Shape, length: int) -> Tensor:
    if shape.positions == "SinusoidalInterleaved":
        return plain.interleaved_sinusoids(length, shape.width)
    return plain.halved_sinusoids(length, shape.width, last=shape.width // 2 - 1)


def logits(content: dict[str, Any], source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of each target position, as OpenNMT-py computes them.

    ``content`` is a checkpoint; ``source`` (batch, source) is padded with 1 at the end; ``target`` (batch,
    target) begins with the start token.
    """
    state, options = content["model"], content["opt"]
    standard = getattr(options, "layer_norm", "standard") == "standard"
    epsilon = getattr(options, "norm_eps", 1e-6)
    root = math.sqrt(options.src_word_vec_size)

    def norm(name: str, x: Tensor) -> Tensor:
        return (plain.layer_norm if standard else plain.rms_norm)(state, name, x, epsilon)

    def attention(name: str, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        projected = [plain.linear(state, f"{name}.linear_query", query)]
        projected += [plain.linear(state, f"{name}.linear_{part}", keys) for part in ("keys", "values")]
        return plain.linear(state, f"{name}.final_linear", plain.attend(*projected, options.heads, mask))

    def feed_forward(name: str, x: Tensor) -> Tensor:
        y = norm(f"{name}.layer_norm", x)
        activation = options.pos_ffn_activation_fn
        hidden = plain.ACTIVATIONS[activation.removeprefix("gated-")](plain.linear(state, f"{name}.w_1", y))
        if activation in GATED:
            hidden = hidden * plain.linear(state, f"{name}.w_3", y)
        return x + plain.linear(state, f"{name}.w_2", hidden)

    def embed(stack: str, ids: Tensor) -> Tensor:
        name = f"{stack}.embeddings.make_embedding"
        return root * state[f"{name}.emb_luts.0.weight"][ids] + state[f"{name}.pe.pe"][: ids.shape[1], 0]

    mask = plain.key_mask(source, PAD)
    x = embed("encoder", source)
    for n in range(options.enc_layers):
        layer = f"encoder.transformer.{n}"
        y = norm(f"{layer}.layer_norm", x)
        x = feed_forward(f"{layer}.feed_forward", x + attention(f"{layer}.self_attn", y, y, mask))
    memory, x = norm("encoder.layer_norm", x), embed("decoder", target)
    for n in range(options.dec_layers):
        layer = f"decoder.transformer_layers.{n}"
        y = norm(f"{layer}.layer_norm_1", x)
        x = x + attention(f"{layer}.self_attn", y, y, plain.causal_mask(target))
        x = x + attention(f"{layer}.context_attn", norm(f"{layer}.layer_norm_2", x), memory, mask)
        x = feed_forward(f"{layer}.feed_forward", x)
    generator = {name.removeprefix("0."): tensor for name, tensor in content["generator"].items()}
    return plain.linear({f"g.{name}": t for name, t in generator.items()}, "g", norm("decoder.layer_norm", x))
