"""Marian: a model written as its ``.npz``, and its computation in plain torch.

Matrices are (in, out). Embeddings × √width, sinusoids in halves whose last wavelength is 10000 · 2π, norms
with epsilon 1e-6. The source ends in </s>; the decoder starts from a zero embedding at position 0. There is
no padding token.
"""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from interop.foreign import plain

EPSILON = 1e-6


@dataclass(frozen=True)
class Shape:
    """What differs between models."""

    ssru: bool = False
    activation: str = "relu"
    tied: str = "all"  # all, inputs, output, or none
    top: bool = False
    embedding_norm: bool = False
    layers: int = 2
    width: int = 24
    inner: int = 32
    heads: int = 3


VARIANTS = [
    Shape(),
    Shape(ssru=True),
    Shape(top=True, activation="swish", tied="output"),
    Shape(ssru=True, tied="none"),
    Shape(embedding_norm=True, tied="inputs"),
]
State = dict[str, Tensor]


def parameters(shape: Shape, vocabulary: int, seed: int = 0) -> State:
    """Return random parameters under Marian's names."""
    generator = torch.Generator().manual_seed(seed)
    state: State = {}

    def matrix(name: str, inputs: int, outputs: int) -> None:
        state[name] = torch.randn(inputs, outputs, generator=generator) / math.sqrt(inputs)

    def vector(name: str, width: int, mean: float = 0.0) -> None:
        state[name] = mean + 0.3 * torch.randn(1, width, generator=generator)

    def norm(name: str, suffix: str = "") -> None:
        vector(f"{name}_ln_scale{suffix}", shape.width, 1.0)
        vector(f"{name}_ln_bias{suffix}", shape.width)

    for name in ["Wemb"] if shape.tied in ("all", "inputs") else ["encoder_Wemb", "decoder_Wemb"]:
        state[name] = torch.randn(vocabulary, shape.width, generator=generator) / math.sqrt(shape.width)
    if shape.tied in ("inputs", "none"):
        matrix("decoder_ff_logit_out_W", shape.width, vocabulary)
    vector("decoder_ff_logit_out_b", vocabulary)
    for stack in ("encoder", "decoder"):
        if shape.embedding_norm:
            norm(f"{stack}_emb", "_pre")
        if shape.top:
            norm(f"{stack}_top")
        for layer in range(1, shape.layers + 1):
            prefix = f"{stack}_l{layer}"
            attentions = ["self"] if stack == "encoder" else ["self", "context"]
            if stack == "decoder" and shape.ssru:
                attentions = ["context"]
                matrix(f"{prefix}_rnn_W", shape.width, shape.width)
                matrix(f"{prefix}_rnn_Wf", shape.width, shape.width)
                vector(f"{prefix}_rnn_bf", shape.width)
                norm(f"{prefix}_rnn_ffn")
            for kind in attentions:
                for part in "qkvo":
                    matrix(f"{prefix}_{kind}_W{part}", shape.width, shape.width)
                    vector(f"{prefix}_{kind}_b{part}", shape.width)
                norm(f"{prefix}_{kind}_Wo")
            matrix(f"{prefix}_ffn_W1", shape.width, shape.inner)
            vector(f"{prefix}_ffn_b1", shape.inner)
            matrix(f"{prefix}_ffn_W2", shape.inner, shape.width)
            vector(f"{prefix}_ffn_b2", shape.width)
            norm(f"{prefix}_ffn_ffn")
    return state


def write(path: Path, shape: Shape, state: State) -> None:
    """Write ``.npz`` as Marian does."""
    options = {
        "type": "transformer",
        "dim-emb": shape.width,
        "enc-depth": shape.layers,
        "dec-depth": shape.layers,
        "dec-cell": "ssru",
        "transformer-heads": shape.heads,
        "transformer-dim-ffn": shape.inner,
        "transformer-ffn-activation": shape.activation,
        "transformer-ffn-depth": 2,
        "transformer-decoder-autoreg": "rnn" if shape.ssru else "self-attention",
        "transformer-preprocess": '""',
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "nd" if shape.embedding_norm else "d",
        "transformer-postprocess-top": "n" if shape.top else '""',
        "tied-embeddings-all": str(shape.tied == "all").lower(),
        "tied-embeddings": str(shape.tied == "output").lower(),
        "tied-embeddings-src": str(shape.tied == "inputs").lower(),
    }
    text = "".join(f"{name}: {value}\n" for name, value in options.items()).encode() + b"\0"
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    np.savez(path, **arrays, **{"special:model.yml": np.frombuffer(text, np.int8)})


def logits(shape: Shape, state: State, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits after each prefix of the target, (1, length + 1, vocabulary), of one sentence."""
    source_table = state.get("Wemb", state.get("encoder_Wemb"))
    target_table = state.get("Wemb", state.get("decoder_Wemb"))
    scale = math.sqrt(shape.width)
    x = _stack(shape, state, "encoder", F.embedding(source, source_table) * scale, None)
    start = torch.zeros(1, 1, shape.width)
    y = torch.cat((start, F.embedding(target, target_table) * scale), dim=1)
    y = _stack(shape, state, "decoder", y, x)
    matrix = state.get("decoder_ff_logit_out_W", target_table.t())
    return y @ matrix + state["decoder_ff_logit_out_b"]


def _stack(shape: Shape, state: State, stack: str, x: Tensor, memory: Tensor | None) -> Tensor:
    x = x + plain.halved_sinusoids(x.shape[1], shape.width, last=shape.width // 2 - 1)

    def norm(name: str, value: Tensor, suffix: str = "") -> Tensor:
        scale, bias = (state[f"{name}_ln_{kind}{suffix}"][0] for kind in ("scale", "bias"))
        return F.layer_norm(value, value.shape[-1:], scale, bias, EPSILON)

    def around(name: str, value: Tensor, function) -> Tensor:
        return norm(name, value + function(value))

    def attention(name: str, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            part @ state[f"{name}_W{letter}"] + state[f"{name}_b{letter}"]
            for letter, part in (("q", query), ("k", keys), ("v", keys))
        )
        return plain.attend(q, k, v, shape.heads, mask) @ state[f"{name}_Wo"] + state[f"{name}_bo"]

    def recurrent(name: str, value: Tensor) -> Tensor:
        cell, outputs = torch.zeros(1, shape.width), []
        for here in value.unbind(1):
            forget = torch.sigmoid(here @ state[f"{name}_Wf"] + state[f"{name}_bf"])
            cell = forget * cell + (1 - forget) * (here @ state[f"{name}_W"])
            outputs.append(cell.relu())
        return torch.stack(outputs, dim=1)

    def feed_forward(name: str, value: Tensor) -> Tensor:
        inner = value @ state[f"{name}_W1"] + state[f"{name}_b1"]
        return plain.ACTIVATIONS[shape.activation](inner) @ state[f"{name}_W2"] + state[f"{name}_b2"]

    def attend_memory(name: str, query: Tensor) -> Tensor:
        return attention(name, query, memory, torch.ones(1, 1, memory.shape[1], dtype=torch.bool))

    if shape.embedding_norm:
        x = norm(f"{stack}_emb", x, "_pre")
    everything = torch.ones(1, 1, x.shape[1], dtype=torch.bool)
    own = everything if memory is None else plain.causal_mask(x[..., 0])
    for layer in itertools.count(1):
        prefix = f"{stack}_l{layer}"
        if f"{prefix}_ffn_W1" not in state:
            break
        if memory is not None and shape.ssru:
            x = around(f"{prefix}_rnn_ffn", x, lambda h, p=prefix: recurrent(f"{p}_rnn", h))
        else:
            x = around(f"{prefix}_self_Wo", x, lambda h, p=prefix: attention(f"{p}_self", h, h, own))
        if memory is not None:
            x = around(f"{prefix}_context_Wo", x, lambda h, p=prefix: attend_memory(f"{p}_context", h))
        x = around(f"{prefix}_ffn_ffn", x, lambda h, p=prefix: feed_forward(f"{p}_ffn", h))
    return norm(f"{stack}_top", x) if shape.top else x
