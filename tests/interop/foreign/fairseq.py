"""Models of fairseq: ``checkpoint_best.pt`` and the dictionaries ``dict.LANG.txt``.

A checkpoint is a pickled dictionary: ``model`` (tensors, also the tied ones) and the options, in ``args`` (a
Namespace, up to 0.9) or in ``cfg["model"]`` (a Namespace in a dictionary, from 0.10). A dictionary has a line
``token count`` for each token after ``<s> <pad> </s> <unk>``; lines ``madeupword0000 0`` fill it up to a
multiple of eight. Sinusoids are not stored: sines before cosines, denominator d/2 − 1, first position 2
(padding takes none). Learned positions are a table that begins with two rows that are not used. Epsilon is
1e-5; final norms exist in pre-norm stacks; embeddings × √d unless ``no_scale_embedding``. The output has no
bias. Source: tokens and ``</s>``, padded on the left; the decoder starts with ``</s>``. Encoder layers of
0.12.2 have eight more tensors (``in_proj_weight``, ``fc1_bias``, …): parameters of a fast path that training
never updates (zero, or copies in a resumed run).

Checked against fairseq 0.12.2 (whose dataclasses need a patch on Python 3.11): logits differ by at most 1e-6.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from foreign import plain
from foreign.plain import OTHER_PIECES, PIECES, RandomState
from torch import Tensor

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
PAD, EOS = 1, 2
BOS = EOS  # what the decoder starts with
MAX_LENGTH = 62


@dataclass(frozen=True)
class Shape:
    """The options of a small model."""

    encoder_layers: int = 2
    decoder_layers: int = 1
    width: int = 24
    heads: int = 3
    hidden: int = 40
    activation: str = "relu"
    is_pre_norm: bool = False
    learned_positions: bool = False
    no_scale: bool = False
    embedding_norm: bool = False
    share_all: bool = False
    share_decoder: bool = False
    options: str = "cfg"  # args
    has_fused_copies: bool = False


VARIANTS = {
    "post-separate": Shape(),
    "pre-shared-all": Shape(is_pre_norm=True, share_all=True, share_decoder=True),
    "pre-tied-decoder": Shape(is_pre_norm=True, share_decoder=True, options="args"),
    "post-gelu-shared-all": Shape(activation="gelu", share_all=True, share_decoder=True, options="args"),
    "learned-unscaled-embedding-norm": Shape(
        activation="gelu", learned_positions=True, no_scale=True, embedding_norm=True, share_all=True
    ),
    "fused-copies": Shape(is_pre_norm=True, share_decoder=True, has_fused_copies=True),
    "gelu_accurate": Shape(activation="gelu_accurate", is_pre_norm=True),
}


def vocabularies(shape: Shape) -> tuple[list[str], list[str]]:
    """Return the source and the target tokens, with the special ones."""
    return _filled(PIECES), _filled(PIECES if shape.share_all else OTHER_PIECES)


def _filled(pieces: list[str]) -> list[str]:
    tokens = SPECIAL + pieces
    return tokens + [f"madeupword{n:04d}" for n in range(-len(tokens) % 8)]


def write(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Write a random model from ``en`` to ``de``."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = vocabularies(shape)
    for language, tokens in (("en", source), ("de", target)):
        names = tokens[len(SPECIAL) :]
        lines = (
            f"{name} {0 if name.startswith('madeupword') else len(tokens) - n}\n"
            for n, name in enumerate(names)
        )
        (folder / f"dict.{language}.txt").write_text("".join(lines), encoding="utf-8")
    options = argparse.Namespace(**_options(shape))
    task = {"_name": "translation", "source_lang": "en", "target_lang": "de", "left_pad_source": True}
    cfg = {"_name": None, "model": options, "task": task, "bpe": None, "tokenizer": None}
    content = {
        "args": options if shape.options == "args" else None,
        **({} if shape.options == "args" else {"cfg": cfg}),
        "model": dict(_state(shape, len(source), len(target), seed)),
        "criterion": None,
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 100}],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
    }
    torch.save(content, folder / "checkpoint_best.pt")


def _options(shape: Shape) -> dict[str, Any]:
    options: dict[str, Any] = {
        "arch": "transformer",
        "_name": "transformer",
        "task": "translation",
        "source_lang": "en",
        "target_lang": "de",
        "activation_fn": shape.activation,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "share_all_embeddings": shape.share_all,
        "share_decoder_input_output_embed": shape.share_decoder,
        "no_scale_embedding": shape.no_scale,
        "layernorm_embedding": shape.embedding_norm,
        "no_token_positional_embeddings": False,
        "no_decoder_final_norm": False,
        "adaptive_softmax_cutoff": None,
        "adaptive_input": False,
        "no_cross_attention": False,
        "cross_self_attention": False,
        "max_source_positions": MAX_LENGTH,
        "max_target_positions": MAX_LENGTH,
        "left_pad_source": True,
        "left_pad_target": False,
        "encoder_layerdrop": 0,
        "decoder_layerdrop": 0,
        "decoder_output_dim": shape.width,
        "decoder_input_dim": shape.width,
        "bpe": None,
        "tokenizer": None,
    }
    for stack, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        options |= {
            f"{stack}_layers": layers,
            f"{stack}_embed_dim": shape.width,
            f"{stack}_ffn_embed_dim": shape.hidden,
            f"{stack}_attention_heads": shape.heads,
            f"{stack}_normalize_before": shape.is_pre_norm,
            f"{stack}_learned_pos": shape.learned_positions,
            f"{stack}_embed_path": None,
        }
    return options


def _state(shape: Shape, sources: int, targets: int, seed: int) -> RandomState:
    state, width = RandomState(seed), shape.width
    embedding = state.random(sources, width)
    for stack, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        state[f"{stack}.version"] = torch.tensor([3.0])
        if stack == "decoder" and not shape.share_all:
            embedding = state.random(targets, width)
        state[f"{stack}.embed_tokens.weight"] = embedding
        if shape.learned_positions:
            state[f"{stack}.embed_positions.weight"] = state.random(MAX_LENGTH + PAD + 1, width)
        else:
            state[f"{stack}.embed_positions._float_tensor"] = torch.zeros(1)
        if shape.embedding_norm:
            state.norm(f"{stack}.layernorm_embedding", width)
        for layer in (f"{stack}.layers.{n}" for n in range(layers)):
            for attention in ("self_attn", "encoder_attn") if stack == "decoder" else ("self_attn",):
                for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                    state.linear(f"{layer}.{attention}.{part}", width, width)
                state.norm(f"{layer}.{attention}_layer_norm", width)
            state.linear(f"{layer}.fc1", width, shape.hidden)
            state.linear(f"{layer}.fc2", shape.hidden, width)
            state.norm(f"{layer}.final_layer_norm", width)
            if shape.has_fused_copies and stack == "encoder":
                _fill_fused_copies(state, shape, layer)
        if shape.is_pre_norm:
            state.norm(f"{stack}.layer_norm", width)
    is_tied = shape.share_all or shape.share_decoder
    state["decoder.output_projection.weight"] = embedding if is_tied else state.random(targets, width)
    return state


def _fill_fused_copies(state: RandomState, shape: Shape, layer: str) -> None:
    sizes = {"in_proj": (3 * shape.width, shape.width), "out_proj": (shape.width, shape.width)}
    sizes |= {"fc1": (shape.hidden, shape.width), "fc2": (shape.width, shape.hidden)}
    for part, (rows, columns) in sizes.items():
        state[f"{layer}.{part}_weight"] = torch.zeros(rows, columns)
        state[f"{layer}.{part}_bias"] = torch.zeros(rows)


def positions(length: int, width: int) -> Tensor:
    """Return the sinusoids (length, width) of positions 2, 3, …."""
    return plain.halved_sinusoids(length + PAD + 1, width, last=width // 2 - 1)[PAD + 1 :]


def _activate(name: str, x: Tensor) -> Tensor:
    if name == "gelu_accurate":
        return torch.nn.functional.gelu(x, approximate="tanh")
    return plain.ACTIVATIONS[name](x)


def logits(content: dict[str, Any], source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of each target position, as fairseq computes them.

    ``content`` is a checkpoint; ``source`` (batch, source) may be padded with 1 on either side; ``target``
    (batch, target) begins with the start token.
    """
    state = content["model"]
    options = content.get("args") or content["cfg"]["model"]
    options = options if isinstance(options, dict) else vars(options)

    def residual(norm: str, x: Tensor, function: Any, is_pre_norm: bool) -> Tensor:
        if is_pre_norm:
            return x + function(plain.layer_norm(state, norm, x, 1e-5))
        return plain.layer_norm(state, norm, x + function(x), 1e-5)

    def attention(name: str, query: Tensor, keys: Tensor, mask: Tensor, heads: int) -> Tensor:
        inputs = {"q": query, "k": keys, "v": keys}
        projected = [plain.linear(state, f"{name}.{part}_proj", x) for part, x in inputs.items()]
        return plain.linear(state, f"{name}.out_proj", plain.attend(*projected, heads, mask))

    def embed(stack: str, ids: Tensor) -> Tensor:
        weight = state[f"{stack}.embed_tokens.weight"]
        x = (1 if options["no_scale_embedding"] else math.sqrt(weight.shape[1])) * weight[ids]
        learned = state.get(f"{stack}.embed_positions.weight")
        table = positions(ids.shape[1], weight.shape[1]) if learned is None else learned[PAD + 1 :]
        x = x + table[((ids != PAD).cumsum(1) - 1).clamp(min=0)]
        if options["layernorm_embedding"]:
            x = plain.layer_norm(state, f"{stack}.layernorm_embedding", x, 1e-5)
        return x

    def run(stack: str, x: Tensor, mask: Tensor, memory: tuple[Tensor, Tensor] | None) -> Tensor:
        heads, is_pre = options[f"{stack}_attention_heads"], options[f"{stack}_normalize_before"]

        def feed_forward(layer: str, y: Tensor) -> Tensor:
            hidden = _activate(options["activation_fn"], plain.linear(state, f"{layer}.fc1", y))
            return plain.linear(state, f"{layer}.fc2", hidden)

        for n in range(options[f"{stack}_layers"]):
            layer = f"{stack}.layers.{n}"
            name = f"{layer}.self_attn"
            x = residual(
                f"{name}_layer_norm", x, lambda y, name=name: attention(name, y, y, mask, heads), is_pre
            )
            if memory is not None:
                name = f"{layer}.encoder_attn"
                x = residual(
                    f"{name}_layer_norm", x, lambda y, name=name: attention(name, y, *memory, heads), is_pre
                )
            x = residual(
                f"{layer}.final_layer_norm", x, lambda y, layer=layer: feed_forward(layer, y), is_pre
            )
        return plain.layer_norm(state, f"{stack}.layer_norm", x, 1e-5) if is_pre else x

    keys = plain.key_mask(source, PAD)
    memory = run("encoder", embed("encoder", source), keys, None)
    x = run("decoder", embed("decoder", target), plain.causal_mask(target), (memory, keys))
    return plain.linear(state, "decoder.output_projection", x)
