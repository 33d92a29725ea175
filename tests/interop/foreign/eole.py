"""Models of eole: a folder with ``config.json``, ``vocab.json`` and ``model.00.safetensors``.

In the folder of a training run these are links to the files in the newest ``step_N``. ``config.json`` has
only the fields that were set: what is missing has eole's default (``norm_eps`` 1e-5, no biases but the
generator's, relu, SinusoidalInterleaved). Tied tensors are left out of the weights. Always pre-norm with a
final norm on both stacks; embeddings × √d where positions are sinusoids. Source without end token; the
decoder starts with ``<s>``.

Checked against eole 0.6.4, which reads this configuration and these tensors: logits differ by at most 1.5e-6,
and the position tables by nothing.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from foreign import plain
from foreign.plain import OTHER_PIECES, PIECES, RandomState
from safetensors.torch import load_file, save_file
from torch import Tensor

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
PAD, BOS, EOS = 1, 2, 3


@dataclass(frozen=True)
class Shape:
    """The options of a small model; ``None`` leaves the field out of ``config.json``."""

    encoder_layers: int = 2
    decoder_layers: int = 1
    width: int = 24
    heads: int = 3
    hidden: int = 40
    activation: str | None = None
    positions: str = "SinusoidalInterleaved"
    norm: str | None = None
    epsilon: float | None = None
    attention_bias: bool | None = None
    output_bias: bool | None = None  # of attention; None: as attention_bias
    ffn_bias: bool | None = None
    generator_bias: bool | None = None
    share_vocabulary: bool = True
    share_embeddings: bool = True
    tie_output: bool = True


VARIANTS = {
    "defaults": Shape(),
    "biases": Shape(attention_bias=True, ffn_bias=True, epsilon=1e-6),
    "no-output-bias": Shape(attention_bias=True, output_bias=False, ffn_bias=True, generator_bias=False),
    "gelu-concat-separate": Shape(
        activation="gelu",
        positions="SinusoidalConcat",
        attention_bias=True,
        ffn_bias=True,
        share_vocabulary=False,
        share_embeddings=False,
        tie_output=False,
    ),
    "silu": Shape(activation="silu", ffn_bias=True, share_embeddings=False),
    "gated-rms": Shape(activation="gated-silu", norm="rms"),
    "gated-gelu": Shape(activation="gated-gelu", share_vocabulary=False, share_embeddings=False),
    "learned": Shape(positions="Learned", attention_bias=True, ffn_bias=True),
}
LEARNED_POSITIONS = 64


def vocabularies(shape: Shape) -> tuple[list[str], list[str]]:
    """Return the source and the target tokens."""
    return SPECIAL + PIECES, SPECIAL + (PIECES if shape.share_vocabulary else OTHER_PIECES)


def write(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Write a random model."""
    source, target = vocabularies(shape)
    specials = {"bos_token": "<s>", "pad_token": "<blank>", "eos_token": "</s>", "unk_token": "<unk>"}
    vocabulary = {"src": source, "tgt": target, "decoder_start_token": "<s>", "specials": specials}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, indent=2, ensure_ascii=False), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_config(shape), indent=2), encoding="utf-8")
    state = _state(shape, len(source), len(target), seed)
    if shape.share_embeddings:
        del state["tgt_emb.embeddings.weight"]
    if shape.tie_output:
        del state["generator.weight"]
    save_file(
        {name: tensor.contiguous().clone() for name, tensor in state.items()}, folder / "model.00.safetensors"
    )


def _config(shape: Shape) -> dict[str, Any]:
    stack = {
        "hidden_size": shape.width,
        "heads": shape.heads,
        "transformer_ff": shape.hidden,
        "position_encoding_type": shape.positions,
        "mlp_activation_fn": shape.activation,
        "layer_norm": shape.norm,
        "norm_eps": shape.epsilon,
        "add_qkvbias": shape.attention_bias,
        "add_final_linear_bias": shape.output_bias,
        "add_ffnbias": shape.ffn_bias,
        "n_positions": LEARNED_POSITIONS if shape.positions == "Learned" else None,
    }
    stack = {name: value for name, value in stack.items() if value is not None}
    positions = {name: stack[name] for name in ("position_encoding_type", "n_positions") if name in stack}
    model = {
        "architecture": "transformer",
        **stack,
        "share_embeddings": shape.share_embeddings,
        "share_decoder_embeddings": shape.tie_output,
        "embeddings": {"word_vec_size": shape.width, "src_word_vec_size": shape.width}
        | {"tgt_word_vec_size": shape.width, **positions},
        "encoder": {**stack, "encoder_type": "transformer", "layers": shape.encoder_layers}
        | {"src_word_vec_size": shape.width},
        "decoder": {**stack, "decoder_type": "transformer", "layers": shape.decoder_layers}
        | {"tgt_word_vec_size": shape.width, "with_cross_attn": True},
    }
    if shape.generator_bias is not None:
        model["generator_bias"] = shape.generator_bias
    training = {"model_path": "model"}
    return {"share_vocab": shape.share_vocabulary, "src_vocab": "vocab.src", "tgt_vocab": "vocab.tgt"} | {
        "training": training,
        "model": model,
    }


def _state(shape: Shape, sources: int, targets: int, seed: int) -> RandomState:
    state, bias = RandomState(seed), shape.norm != "rms"
    for stack, count in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for n in range(count):
            layer = f"{stack}.transformer_layers.{n}"
            norms = ["input_layernorm", "post_attention_layernorm"]
            _fill_attention(state, shape, f"{layer}.self_attn")
            if stack == "decoder":
                state[f"{layer}.layer_scalar"] = torch.ones(1)
                norms.append("precontext_layernorm")
                _fill_attention(state, shape, f"{layer}.context_attn")
            for norm in norms:
                state.norm(f"{layer}.{norm}", shape.width, bias=bias)
            _fill_feed_forward(state, shape, f"{layer}.mlp")
        state.norm(f"{stack}.layer_norm", shape.width, bias=bias)
    state["src_emb.embeddings.weight"] = state.random(sources, shape.width)
    shared = state["src_emb.embeddings.weight"]
    state["tgt_emb.embeddings.weight"] = (
        shared if shape.share_embeddings else state.random(targets, shape.width)
    )
    for side in ("src_emb", "tgt_emb"):
        if shape.positions == "Learned":
            state[f"{side}.pe.weight"] = state.random(LEARNED_POSITIONS, shape.width)
        else:
            state[f"{side}.pe.pe"] = positions(shape, 5000)[:, None]
    tied = state["tgt_emb.embeddings.weight"]
    state["generator.weight"] = tied if shape.tie_output else state.random(targets, shape.width)
    if shape.generator_bias is not False:
        state["generator.bias"] = state.random(targets)
    return state


def _fill_attention(state: RandomState, shape: Shape, name: str) -> None:
    output_bias = shape.attention_bias if shape.output_bias is None else shape.output_bias
    for part in ("linear_keys", "linear_values", "linear_query"):
        state.linear(f"{name}.{part}", shape.width, shape.width, bias=bool(shape.attention_bias))
    state.linear(f"{name}.final_linear", shape.width, shape.width, bias=bool(output_bias))


def _fill_feed_forward(state: RandomState, shape: Shape, name: str) -> None:
    bias, is_gated = bool(shape.ffn_bias), (shape.activation or "").startswith("gated-")
    for part in ("gate_up_proj", "up_proj") if is_gated else ("gate_up_proj",):
        state.linear(f"{name}.{part}", shape.width, shape.hidden, bias=bias)
    state.linear(f"{name}.down_proj", shape.hidden, shape.width, bias=bias)


def positions(shape: Shape, length: int) -> Tensor:
    """Return the table of sinusoids (length, width)."""
    if shape.positions == "SinusoidalInterleaved":
        return plain.interleaved_sinusoids(length, shape.width)
    return plain.halved_sinusoids(length, shape.width, last=shape.width // 2 - 1)


def logits(folder: Path, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of each target position, as eole computes them.

    ``source`` (batch, source) is padded with 1 at the end; ``target`` (batch, target) begins with the start
    token.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"]
    state = load_file(folder / "model.00.safetensors")
    state.setdefault("tgt_emb.embeddings.weight", state["src_emb.embeddings.weight"])
    state.setdefault("generator.weight", state["tgt_emb.embeddings.weight"])
    rms, epsilon = config.get("layer_norm") == "rms", config.get("norm_eps", 1e-5)
    activation = config.get("mlp_activation_fn", "relu")

    def norm(name: str, x: Tensor) -> Tensor:
        return (plain.rms_norm if rms else plain.layer_norm)(state, name, x, epsilon)

    def attention(name: str, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        projected = [plain.linear(state, f"{name}.linear_query", query)]
        projected += [plain.linear(state, f"{name}.linear_{part}", keys) for part in ("keys", "values")]
        return plain.linear(state, f"{name}.final_linear", plain.attend(*projected, config["heads"], mask))

    def feed_forward(layer: str, x: Tensor) -> Tensor:
        y = norm(f"{layer}.post_attention_layernorm", x)
        inner = plain.linear(state, f"{layer}.mlp.gate_up_proj", y)
        hidden = plain.ACTIVATIONS[activation.removeprefix("gated-")](inner)
        if activation.startswith("gated-"):
            hidden = hidden * plain.linear(state, f"{layer}.mlp.up_proj", y)
        return x + plain.linear(state, f"{layer}.mlp.down_proj", hidden)

    def embed(side: str, ids: Tensor) -> Tensor:
        x, length = state[f"{side}.embeddings.weight"][ids], ids.shape[1]
        if config["position_encoding_type"] == "Learned":
            return x + state[f"{side}.pe.weight"][:length]
        return math.sqrt(x.shape[-1]) * x + state[f"{side}.pe.pe"][:length, 0]

    mask = plain.key_mask(source, PAD)
    x = embed("src_emb", source)
    for n in range(config["encoder"]["layers"]):
        layer = f"encoder.transformer_layers.{n}"
        y = norm(f"{layer}.input_layernorm", x)
        x = feed_forward(layer, x + attention(f"{layer}.self_attn", y, y, mask))
    memory, x = norm("encoder.layer_norm", x), embed("tgt_emb", target)
    for n in range(config["decoder"]["layers"]):
        layer = f"decoder.transformer_layers.{n}"
        y = norm(f"{layer}.input_layernorm", x)
        x = x + attention(f"{layer}.self_attn", y, y, plain.causal_mask(target))
        x = x + attention(f"{layer}.context_attn", norm(f"{layer}.precontext_layernorm", x), memory, mask)
        x = feed_forward(layer, x)
    return plain.linear(state, "generator", norm("decoder.layer_norm", x))
