"""Import from and export to the Llama models of Hugging Face transformers, and others of their shape.

Mistral is Llama; Qwen2 has biases on queries, keys and values. Theirs rotate dimension i together with
i + d/2, ours 2i with 2i + 1: the rows of W^Q and W^K are permuted on the way.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import GPTConfig, Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face import read_fields, read_saved, require, require_norm
from transduce.interop.prompt_tokens import gpt_vocabulary
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.build import build
from transduce.models.gpt import GPT

KINDS = ("llama", "mistral", "qwen2")
_BODY, _OUTPUT = "model.", "lm_head.weight"
_TOKENS = f"{_BODY}embed_tokens.weight"
_COMPUTED = "rotary_emb.inv_freq"  # in older files
_REQUIRED = {"hidden_act": "silu", "use_sliding_window": False}
_QUERY, _KEY, _VALUE = (f"self_attn.{name}_proj." for name in "qkv")
# ours → theirs, inside a layer; several of theirs are concatenated
_NORMS = {
    "around_self_attention.norm.weight": "input_layernorm.weight",
    "around_feed_forward.norm.weight": "post_attention_layernorm.weight",
}
_LINEAR = {
    "self_attention.output.": ["self_attn.o_proj."],
    "feed_forward.inner.": ["mlp.gate_proj.", "mlp.up_proj."],
    "feed_forward.outer.": ["mlp.down_proj."],
}
_JOINT = "self_attention.query_key_value."


def load_llama(folder: str | Path) -> GPT:
    """Load the model of a folder with ``config.json`` and safetensors, in evaluation mode."""
    kind = str(read_fields(Path(folder)).get("model_type"))
    if kind not in KINDS:
        raise ConfigError(f"{folder} holds a {kind} model", f"give one of: {', '.join(KINDS)}")
    fields, state = read_saved(folder, kind)
    model = build(our_config(fields), gpt_vocabulary(fields, folder))
    import_llama(model, state)
    return model.eval()


def our_config(fields: Mapping[str, Any]) -> GPTConfig:
    """Return the configuration that corresponds to the fields of a ``LlamaConfig`` or a relative."""
    kind = fields["model_type"]
    require(fields, _REQUIRED, kind)
    heads = fields["num_attention_heads"]
    width = fields.get("head_dim")
    in_attention, in_feed_forward = (bool(fields.get(f"{part}_bias")) for part in ("attention", "mlp"))
    data = {
        "layers": fields["num_hidden_layers"],
        "d_model": fields["hidden_size"],
        "d_ff": fields["intermediate_size"],
        "heads": heads,
        "key_value_heads": fields.get("num_key_value_heads") or heads,
        "d_k": width,
        "d_v": width,
        "dropout": 0.0,
        "attention_dropout": fields.get("attention_dropout", 0.0),
        "activation": "swiglu",
        "positions": "rotary",
        "rotary_base": _rotary_base(fields),
        "normalization": "rms",
        "norm_epsilon": fields.get("rms_norm_eps", 1e-6),
        "bias": in_attention or in_feed_forward,  # those that are missing are zeros
        "qkv_bias": kind == "qwen2" or in_attention or in_feed_forward,
        "share_output": bool(fields.get("tie_word_embeddings", False)),
        "max_length": _context(fields),
    }
    return validate(GPTConfig, data, where=f"the {kind} model")


def _rotary_base(fields: Mapping[str, Any]) -> object:
    """Return the base of the wavelengths; refuse those that are scaled for longer texts."""
    scaling = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise ConfigError(f"rope_parameters = {scaling!r} is not a table", "copy the folder again")
    how = scaling.get("rope_type", scaling.get("type", "default"))
    if how != "default":
        raise ConfigError(
            f"rotary positions of type {how!r} are not supported", "use a model without scaling"
        )
    return scaling.get("rope_theta", fields.get("rope_theta", 10_000.0))


def _context(fields: Mapping[str, Any]) -> object:
    """Return the longest text for which their sliding window, if there is one, does not matter."""
    longest, window = fields["max_position_embeddings"], fields.get("sliding_window")
    if not window or window >= longest or fields["model_type"] == "qwen2":
        return longest
    warnings.warn(
        f"the model's attention has a sliding window of {window} tokens: texts are limited to that length",
        stacklevel=4,
    )
    return window


def their_fields(config: GPTConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the fields of a ``LlamaConfig``, or a ``Qwen2Config`` if only W^Q, W^K and W^V have biases."""
    _check(config)
    return {
        "model_type": "qwen2" if _has_qkv_bias(config) and not config.bias else "llama",
        "vocab_size": vocabulary.target,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads or config.heads,
        "head_dim": config.key_width,
        "intermediate_size": config.d_ff,
        "hidden_act": "silu",
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": config.attention_dropout,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary_base,
        "rope_parameters": {"rope_theta": config.rotary_base, "rope_type": "default"},
        "max_position_embeddings": config.max_length,
        "tie_word_embeddings": config.share_output,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.pad,
    }


def export_llama(model: GPT) -> dict[str, Tensor]:
    """Return the state dict of a model with `their_fields`: the same logits."""
    config = model.config
    state = export_rows(model, _table(config))
    widths = [heads * config.key_width for heads in _heads(config)]
    for joint in [name for name in state if _JOINT in name]:
        layer, kind = joint.split(_JOINT)
        query, key, value = torch.split(state.pop(joint), widths)
        state[f"{layer}{_QUERY}{kind}"] = _in_halves(query, config.key_width)
        state[f"{layer}{_KEY}{kind}"] = _in_halves(key, config.key_width)
        state[f"{layer}{_VALUE}{kind}"] = value
    if config.share_output:
        state[_OUTPUT] = state[_TOKENS]
    return {name: tensor.contiguous() for name, tensor in state.items()}


def import_llama(model: GPT, state: Mapping[str, Tensor]) -> None:
    """Copy one of their models, of the same sizes, into the model.

    ``state`` is its state dict or the content of ``model.safetensors``.
    """
    config = model.config
    left = {name: tensor for name, tensor in state.items() if not name.endswith(_COMPUTED)}
    output = left.get(_OUTPUT)
    if config.share_output and output is not None:
        if not torch.equal(output, left.get(_TOKENS, output[:0])):
            raise ArtifactError(
                f"{_OUTPUT} differs from {_TOKENS}, but the model shares one matrix",
                "set tie_word_embeddings to false in config.json",
            )
        del left[_OUTPUT]
    for i in range(config.layers):
        layer = f"{_BODY}layers.{i}."
        if config.bias:
            _add_missing_biases(left, layer)
        for kind in _kinds(_has_qkv_bias(config)):
            _join(left, layer, kind, config)
    import_rows(model, _table(config), left)


def _table(config: GPTConfig) -> Iterator[Row]:
    """Yield the rows of the table, after W^Q, W^K and W^V have been joined under our name for them."""
    _check(config)
    yield Row([_TOKENS], ["output.weight" if config.share_output else "input_embedding.weight"])
    if not config.share_output:
        yield Row([_OUTPUT], ["output.weight"])
    yield Row([f"{_BODY}norm.weight"], ["decoder.final_norm.weight"])
    for i in range(config.layers):
        theirs, ours = f"{_BODY}layers.{i}.", f"decoder.layers.{i}."
        for our, their in _NORMS.items():
            yield Row([f"{theirs}{their}"], [f"{ours}{our}"])
        for kind in _kinds(config.bias):
            for our, parts in _LINEAR.items():
                yield Row([f"{theirs}{part}{kind}" for part in parts], [f"{ours}{our}{kind}"])
        for kind in _kinds(_has_qkv_bias(config)):
            yield Row([f"{theirs}{_JOINT}{kind}"], [f"{ours}{_JOINT}{kind}"])


def _kinds(has_bias: bool) -> tuple[str, ...]:
    return ("weight", "bias") if has_bias else ("weight",)


def _has_qkv_bias(config: GPTConfig) -> bool:
    return config.bias if config.qkv_bias is None else config.qkv_bias


def _join(state: dict[str, Tensor], layer: str, kind: str, config: GPTConfig) -> None:
    """Replace W^Q, W^K and W^V of a layer by one tensor in our order."""
    parts = []
    for part, heads in zip((_QUERY, _KEY, _VALUE), _heads(config), strict=True):
        name = f"{layer}{part}{kind}"
        shape = (heads * config.key_width, config.d_model)[: 2 if kind == "weight" else 1]
        found = state.pop(name, None)
        if found is None or found.shape != shape:
            problem = "is missing" if found is None else f"has shape {tuple(found.shape)}"
            raise ArtifactError(
                f"{name} {problem}, but {shape} is needed",
                "give the complete weights of a model of these sizes",
            )
        parts.append(found)
    query, key = (_in_pairs(part, config.key_width) for part in parts[:2])
    state[f"{layer}{_JOINT}{kind}"] = torch.cat([query, key, parts[2]])


def _heads(config: GPTConfig) -> tuple[int, int, int]:
    """Return the number of heads of queries, keys and values."""
    shared = config.key_value_heads or config.heads
    return config.heads, shared, shared


def _in_pairs(rows: Tensor, width: int) -> Tensor:
    """Reorder the rows of every head: those that rotate together, i and i + width/2, become neighbours."""
    return rows.reshape(-1, 2, width // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _in_halves(rows: Tensor, width: int) -> Tensor:
    """Undo `_in_pairs`."""
    return rows.reshape(-1, width // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _add_missing_biases(state: dict[str, Tensor], layer: str) -> None:
    """Add zeros where only attention, or only the feed-forward networks have biases."""
    parts = [_QUERY, _KEY, _VALUE, *(part for parts in _LINEAR.values() for part in parts)]
    for part in parts:
        weight = state.get(f"{layer}{part}weight")
        if weight is not None and weight.dim() and weight.is_floating_point():
            state.setdefault(f"{layer}{part}bias", weight.new_zeros(len(weight)))


def _check(config: GPTConfig) -> None:
    """Refuse a model that is not of Llama's shape."""
    require_norm(config.norm, "pre", "llama")
    needed = {"positions": "rotary", "normalization": "rms", "activation": "swiglu"}
    for name, value in needed.items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"llama has {name} = {value!r}, but the model has {getattr(config, name)!r}",
                f"use a model with {name} = {value!r}",
            )
    if config.key_width % 2 or (config.d_v or config.d_model // config.heads) != config.key_width:
        raise ConfigError("llama has heads of an even width, the same for keys and values", "set d_k = d_v")
    if config.bias and not _has_qkv_bias(config):
        raise ConfigError(
            "llama has no biases without those of queries, keys and values", "set qkv_bias = true"
        )
