"""Import from and export to ``GPT2LMHeadModel`` of Hugging Face transformers.

GPT-2 uses the module "Conv1D" for linear maps; its matrices are ours, transposed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import GPTConfig, Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face import activation, read_saved, require, require_norm, their_activation
from transduce.interop.prompt_tokens import gpt_vocabulary
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.build import build
from transduce.models.gpt import GPT

# ours → theirs, inside a layer
_LAYER = {
    "around_self_attention.norm.": "ln_1.",
    "self_attention.query_key_value.": "attn.c_attn.",
    "self_attention.output.": "attn.c_proj.",
    "around_feed_forward.norm.": "ln_2.",
    "feed_forward.inner.": "mlp.c_fc.",
    "feed_forward.outer.": "mlp.c_proj.",
}
_PREFIX = "transformer."
_TOKENS, _OUTPUT = f"{_PREFIX}wte.weight", "lm_head.weight"
_CAUSAL_MASKS = (".attn.bias", ".attn.masked_bias")  # in older files
_REQUIRED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def load_gpt2(folder: str | Path) -> GPT:
    """Load the model of a folder with ``config.json`` and ``model.safetensors``, in evaluation mode."""
    fields, state = read_saved(folder, "gpt2")
    model = build(our_config(fields), gpt_vocabulary(fields, folder))
    import_gpt2(model, state)
    return model.eval()


def our_config(fields: Mapping[str, Any]) -> GPTConfig:
    """Return the configuration that corresponds to the fields of a ``GPT2Config``."""
    require(fields, _REQUIRED, "gpt2")
    width = fields["n_embd"]
    data = {
        "layers": fields["n_layer"],
        "d_model": width,
        "d_ff": fields.get("n_inner") or 4 * width,
        "heads": fields["n_head"],
        "dropout": fields.get("resid_pdrop", 0.1),
        "attention_dropout": fields.get("attn_pdrop", 0.1),
        "activation": activation(fields, "activation_function", "gelu_new"),
        "norm_epsilon": fields.get("layer_norm_epsilon", 1e-5),
        "max_length": fields["n_positions"],
    }
    return validate(GPTConfig, data, where="the gpt2 model")


def their_fields(config: GPTConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the fields of a ``GPT2Config`` for the same model."""
    _check(config)
    return {
        "vocab_size": vocabulary.target,
        "n_positions": config.max_length,
        "n_embd": config.d_model,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.d_ff,
        "activation_function": their_activation(config.activation),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.norm_epsilon,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.pad,
    }


def export_gpt2(model: GPT) -> dict[str, Tensor]:
    """Return the state dict of a ``GPT2LMHeadModel`` with `their_fields`: the same logits."""
    rows = export_rows(model, _table(model.config))
    state = {name: _transposed(name, tensor).contiguous() for name, tensor in rows.items()}
    return state | {_OUTPUT: state[_TOKENS]}


def import_gpt2(model: GPT, state: Mapping[str, Tensor]) -> None:
    """Copy a ``GPT2LMHeadModel`` of the same sizes into the model.

    ``state`` is its state dict or the content of ``model.safetensors``; a plain ``GPT2Model`` works as well.
    """
    left = {
        name if name.startswith(_PREFIX) or name == _OUTPUT else f"{_PREFIX}{name}": tensor
        for name, tensor in state.items()
        if not name.endswith(_CAUSAL_MASKS)
    }
    output = left.pop(_OUTPUT, None)
    if output is not None and not torch.equal(output, left.get(_TOKENS, output[:0])):
        raise ArtifactError(
            f"{_OUTPUT} differs from {_TOKENS}, but the model shares one matrix", "use a plain gpt2 model"
        )
    import_rows(model, _table(model.config), {name: _transposed(name, left[name]) for name in left})


def _table(config: GPTConfig) -> Iterator[Row]:
    _check(config)
    yield Row([_TOKENS], ["output.weight"])
    yield Row([f"{_PREFIX}wpe.weight"], ["positions.weight"])
    for i in range(config.layers):
        for our, their in _LAYER.items():
            for kind in ("weight", "bias"):
                yield Row([f"{_PREFIX}h.{i}.{their}{kind}"], [f"decoder.layers.{i}.{our}{kind}"])
    for kind in ("weight", "bias"):
        yield Row([f"{_PREFIX}ln_f.{kind}"], [f"decoder.final_norm.{kind}"])


def _transposed(name: str, tensor: Tensor) -> Tensor:
    return tensor.t() if ".c_" in name and name.endswith(".weight") and tensor.dim() == 2 else tensor


def _check(config: GPTConfig) -> None:
    """Refuse a model that is not of GPT-2's shape."""
    require_norm(config.norm, "pre", "gpt2")
    usual = GPTConfig()
    names = (
        "positions",
        "normalization",
        "bias",
        "qkv_bias",
        "share_output",
        "key_value_heads",
        "d_k",
        "d_v",
    )
    for name in names:
        if getattr(config, name) != getattr(usual, name):
            raise ConfigError(
                f"gpt2 has {name} = {getattr(usual, name)!r}, but the model has {getattr(config, name)!r}",
                f"use a model with {name} = {getattr(usual, name)!r}",
            )
