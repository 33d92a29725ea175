"""Models of JoeyNMT 2: a folder with ``config.yaml``, ``src_vocab.txt``, ``trg_vocab.txt`` and ``best.ckpt``.

The checkpoint is a pickled dictionary; ``model_state`` has the tensors, also the tied ones. ``best.ckpt`` and
``latest.ckpt`` are links to ``STEP.ckpt``. Line n of a vocabulary file is token n, special tokens included.
Post-norm has no final norms. **Without** ``layer_norm`` in the configuration, encoder layers are pre-norm
without a final norm, and decoder layers are post-norm. Residual connections are x·alpha + f(x):
``initializer: xavier_normal`` sets alpha to DeepNet's values, which are not in the checkpoint. The output has
no bias. Embeddings are × √d only with ``scale: True``. Source: tokens and ``</s>``; the decoder starts with
``<s>``.

Checked against joeynmt 2.3.0, which loads these files: logits differ by at most 1.2e-6.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from foreign import plain
from foreign.plain import OTHER_PIECES, PIECES, RandomState
from torch import Tensor

SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
PAD, BOS, EOS = 1, 2, 3


@dataclass(frozen=True)
class Shape:
    """The options of a small model."""

    encoder_layers: int = 2
    decoder_layers: int = 1
    width: int = 24
    heads: int = 3
    hidden: int = 40
    activation: str = "relu"
    norm: str | None = "pre"  # "pre" or "post"; None leaves it out
    scale: bool = True
    initializer: str = "xavier_uniform"
    share_vocabulary: bool = True
    tie_embeddings: bool = True
    tie_output: bool = True


VARIANTS = {
    "pre": Shape(),
    "post-separate": Shape(norm="post", share_vocabulary=False, tie_embeddings=False, tie_output=False),
    "no-layer_norm": Shape(norm=None, tie_embeddings=False),
    "post-deepnet-gelu": Shape(norm="post", activation="gelu", initializer="xavier_normal"),
    "pre-deepnet": Shape(initializer="xavier_normal"),
    "pre-swish-unscaled": Shape(activation="swish", scale=False, tie_output=False),
}


def vocabularies(shape: Shape) -> tuple[list[str], list[str]]:
    """Return the source and the target tokens."""
    return SPECIAL + PIECES, SPECIAL + (PIECES if shape.share_vocabulary else OTHER_PIECES)


def write(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Write a random model."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = vocabularies(shape)
    for name, tokens in (("src_vocab.txt", source), ("trg_vocab.txt", target)):
        (folder / name).write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    (folder / "config.yaml").write_text(yaml.safe_dump(_config(shape), sort_keys=False), encoding="utf-8")
    checkpoint = {
        "model_state": dict(_state(shape, len(source), len(target), seed)),
        "optimizer_state": {"state": {}, "param_groups": []},
        "scaler_state": None,
        "scheduler_state": None,
        "train_iter_state": None,
        "stats_state": {"steps": 100, "is_min_lr": False, "total_tokens": 1000, "best_ckpt_iter": 100},
    }
    torch.save(checkpoint, folder / "100.ckpt")
    for link in ("best.ckpt", "latest.ckpt"):
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to("100.ckpt")


def _config(shape: Shape) -> dict[str, Any]:
    def stack(layers: int) -> dict[str, Any]:
        norm = {} if shape.norm is None else {"layer_norm": shape.norm}
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": shape.heads,
            "embeddings": {"embedding_dim": shape.width, "scale": shape.scale, "dropout": 0.0},
            "hidden_size": shape.width,
            "ff_size": shape.hidden,
            "dropout": 0.1,
            "activation": shape.activation,
            **norm,
        }

    def side(language: str, vocabulary: str) -> dict[str, Any]:
        return {"lang": language, "level": "word", "lowercase": False, "voc_file": vocabulary}

    symbols = {"unk_token": "<unk>", "unk_id": 0, "pad_token": "<pad>", "pad_id": 1}
    symbols |= {"bos_token": "<s>", "bos_id": 2, "eos_token": "</s>", "eos_id": 3}
    return {
        "name": "small",
        "joeynmt_version": "2.3.0",
        "model_dir": "models/small",
        "data": {
            "src": side("en", "src_vocab.txt"),
            "trg": side("de", "trg_vocab.txt"),
            "special_symbols": symbols,
        },
        "model": {
            "initializer": shape.initializer,
            "tied_embeddings": shape.tie_embeddings,
            "tied_softmax": shape.tie_output,
            "encoder": stack(shape.encoder_layers),
            "decoder": stack(shape.decoder_layers),
        },
    }


def _state(shape: Shape, sources: int, targets: int, seed: int) -> RandomState:
    state = RandomState(seed)
    state["src_embed.lut.weight"] = state.random(sources, shape.width)
    shared = state["src_embed.lut.weight"]
    state["trg_embed.lut.weight"] = shared if shape.tie_embeddings else state.random(targets, shape.width)
    stacks = {
        "encoder": (shape.encoder_layers, ["layer_norm"], ["src_src_att"]),
        "decoder": (shape.decoder_layers, ["x_layer_norm", "dec_layer_norm"], ["trg_trg_att", "src_trg_att"]),
    }
    for stack, (layers, norms, attentions) in stacks.items():
        for layer in (f"{stack}.layers.{n}" for n in range(layers)):
            for attention in attentions:
                for part in ("k_layer", "v_layer", "q_layer", "output_layer"):
                    state.linear(f"{layer}.{attention}.{part}", shape.width, shape.width)
            for norm in (*norms, "feed_forward.layer_norm"):
                state.norm(f"{layer}.{norm}", shape.width)
            state.linear(f"{layer}.feed_forward.pwff_layer.0", shape.width, shape.hidden)
            state.linear(f"{layer}.feed_forward.pwff_layer.3", shape.hidden, shape.width)
        state[f"{stack}.pe.pe"] = plain.interleaved_sinusoids(5000, shape.width)[None]
        if shape.norm == "pre":
            state.norm(f"{stack}.layer_norm", shape.width)
    tied = state["trg_embed.lut.weight"]
    state["decoder.output_layer.weight"] = tied if shape.tie_output else state.random(targets, shape.width)
    return state


def _alphas(model: dict[str, Any]) -> tuple[float, float]:
    """Return the factor of residual connections in the encoder and in the decoder."""
    if model.get("initializer") != "xavier_normal":
        return model["encoder"].get("alpha", 1.0), model["decoder"].get("alpha", 1.0)
    encoder, decoder = model["encoder"]["num_layers"], model["decoder"]["num_layers"]
    return 0.81 * (encoder**4 * decoder) ** (1 / 16), (3 * decoder) ** (1 / 4)


def logits(folder: Path, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of each target position, as JoeyNMT computes them.

    ``source`` (batch, source) is padded with 1 at the end; ``target`` (batch, target) begins with the start
    token.
    """
    model = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["model"]
    state = torch.load(folder / "best.ckpt", weights_only=True)["model_state"]

    def attention(name: str, query: Tensor, keys: Tensor, mask: Tensor, heads: int) -> Tensor:
        inputs = {"q": query, "k": keys, "v": keys}
        projected = [plain.linear(state, f"{name}.{part}_layer", x) for part, x in inputs.items()]
        return plain.linear(state, f"{name}.output_layer", plain.attend(*projected, heads, mask))

    def embed(side: str, stack: str, ids: Tensor) -> Tensor:
        embeddings = model[stack]["embeddings"]
        scale = math.sqrt(embeddings["embedding_dim"]) if embeddings["scale"] else 1
        return scale * state[f"{side}.lut.weight"][ids] + state[f"{stack}.pe.pe"][0, : ids.shape[1]]

    def run(stack: str, x: Tensor, alpha: float, default: str, mask: Tensor, memory: Any) -> Tensor:
        options = model[stack]
        is_pre, heads = options.get("layer_norm", default) == "pre", options["num_heads"]

        def residual(norm: str, x: Tensor, function: Any) -> Tensor:
            if is_pre:
                return alpha * x + function(plain.layer_norm(state, norm, x, 1e-6))
            return plain.layer_norm(state, norm, alpha * x + function(x), 1e-6)

        def feed_forward(layer: str, x: Tensor) -> Tensor:
            hidden = plain.linear(state, f"{layer}.feed_forward.pwff_layer.0", x)
            hidden = plain.ACTIVATIONS[options.get("activation", "relu")](hidden)
            return plain.linear(state, f"{layer}.feed_forward.pwff_layer.3", hidden)

        for layer in (f"{stack}.layers.{n}" for n in range(options["num_layers"])):
            own, first = ("src_src", "layer_norm") if memory is None else ("trg_trg", "x_layer_norm")
            own = f"{layer}.{own}_att"
            x = residual(f"{layer}.{first}", x, lambda y, own=own: attention(own, y, y, mask, heads))
            if memory is not None:
                cross = f"{layer}.src_trg_att"
                x = residual(
                    f"{layer}.dec_layer_norm",
                    x,
                    lambda y, cross=cross: attention(cross, y, memory[0], memory[1], heads),
                )
            x = residual(f"{layer}.feed_forward.layer_norm", x, lambda y, layer=layer: feed_forward(layer, y))
        if options.get("layer_norm", "post") == "pre":
            x = plain.layer_norm(state, f"{stack}.layer_norm", x, 1e-6)
        return x

    encoder_alpha, decoder_alpha = _alphas(model)
    keys = plain.key_mask(source, PAD)
    memory = run("encoder", embed("src_embed", "encoder", source), encoder_alpha, "pre", keys, None)
    x = embed("trg_embed", "decoder", target)
    x = run("decoder", x, decoder_alpha, "post", plain.causal_mask(target), (memory, keys))
    return plain.linear(state, "decoder.output_layer", x)
