"""Import from and export to ``MarianMTModel`` of Hugging Face transformers, as plain dictionaries.

Marian's positional encoding has all sines before all cosines, where ours alternates them, and a Marian model
computes its own encoding when it is loaded. Therefore the dimensions of the model are reordered: the weights
that read from or write to the residual connections have their columns or rows in the other order. The logits
stay the same.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from transduce.config import TransformerConfig, Vocabulary
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face import their_activation
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.transformer import Transformer
from transduce.nn.positional import sinusoids

_REMEDY = "import the folder instead: transduce import FOLDER --out MODEL"
POSITIONS = 1024  # Marian's table of positions is limited, ours is not

# ours → theirs, inside a layer; several of theirs are concatenated
_LAYER = {
    "self_attention.query_key_value.": ["self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."],
    "self_attention.output.": ["self_attn.out_proj."],
    "around_self_attention.norm.": ["self_attn_layer_norm."],
    "feed_forward.inner.": ["fc1."],
    "feed_forward.outer.": ["fc2."],
    "around_feed_forward.norm.": ["final_layer_norm."],
}
_DECODER_LAYER = {
    **_LAYER,
    "memory_attention.query.": ["encoder_attn.q_proj."],
    "memory_attention.key_value.": ["encoder_attn.k_proj.", "encoder_attn.v_proj."],
    "memory_attention.output.": ["encoder_attn.out_proj."],
    "around_memory_attention.norm.": ["encoder_attn_layer_norm."],
}
_READS_THE_RESIDUAL = ("q_proj.", "k_proj.", "v_proj.", "fc1.")  # all others write to it

_SOURCE, _TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
_SHARED, _OUTPUT = "model.shared.weight", "lm_head.weight"
_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_BIAS = "final_logits_bias"


def marian_config(
    config: TransformerConfig, vocabulary: Vocabulary, *, positions: int = POSITIONS
) -> dict[str, Any]:
    """Return the fields of a ``MarianConfig`` for the same model, for up to ``positions`` tokens per side."""
    _check(config)
    return {
        "vocab_size": vocabulary.source,
        "decoder_vocab_size": vocabulary.target,
        "max_position_embeddings": positions,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": their_activation(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.share == "all",
        "tie_word_embeddings": config.share != "none",
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "decoder_start_token_id": vocabulary.bos,
        "forced_eos_token_id": None,
    }


def export_marian(model: Transformer, *, positions: int = POSITIONS) -> dict[str, Tensor]:
    """Return the state dict of a ``MarianMTModel`` with the fields of `marian_config`: the same logits."""
    config = model.config
    _check(config)
    order = _order(config.d_model)
    rows = export_rows(model, _table(config))
    state = {name: _reordered(name, tensor, order) for name, tensor in rows.items()}
    state |= {copy: state[name] for copy, name in _copies(config).items()}
    state |= {name: sinusoids(positions, config.d_model)[:, order] for name in _TABLES}
    return state | {_BIAS: torch.zeros(1, model.vocabulary.target)}


def import_marian(model: Transformer, state: Mapping[str, Tensor]) -> None:
    """Copy a ``MarianMTModel`` of the same sizes into the model.

    ``state`` is its state dict, or the content of ``model.safetensors``, which has no computed tensors.
    """
    config = model.config
    _check(config)
    order = _order(config.d_model)
    left = dict(state)
    for copy, name in _copies(config).items():
        if copy in left and not _equal(left.pop(copy), state.get(name)):
            raise ArtifactError(f"{copy} differs from {name}, but the model shares one matrix", _REMEDY)
    for name in set(_TABLES) & left.keys():
        table = left.pop(name)
        if not _equal(table.float(), sinusoids(len(table), config.d_model)[:, order]):
            raise ArtifactError(f"{name} is not the sinusoidal encoding", _REMEDY)
    if left.pop(_BIAS, torch.zeros(())).any():
        raise ArtifactError(f"{_BIAS} is not zero, but the model has no output bias", _REMEDY)
    back = torch.argsort(order)
    import_rows(model, _table(config), {name: _reordered(name, left[name], back) for name in left})


def _check(config: TransformerConfig) -> None:
    """Refuse models that Marian cannot express."""
    width = config.d_model / config.heads
    for name, fits, what in (
        ("norm", config.norm == "post", "is post-norm"),
        ("attention.kind", config.attention.kind == "full", "has full attention"),
        ("source_factors", not config.source_factors, "has no source factors"),
        ("positions", config.positions == "sinusoidal", "has sinusoidal positions"),
        ("activation", config.activation != "swiglu", "has no gated feed-forward network"),
        ("norm_epsilon", config.norm_epsilon == 1e-5, "has layer norms with an epsilon of 1e-5"),
        ("d_k", config.d_k in (None, width), "divides d_model among the heads"),
        ("d_v", config.d_v in (None, width), "divides d_model among the heads"),
    ):
        if not fits:
            value = attrgetter(name)(config)
            raise ConfigError(f"Marian {what}, but the model has {name} = {value!r}", "use another format")


def _table(config: TransformerConfig) -> Iterator[Row]:
    """Yield a row for every tensor."""
    if config.share == "all":
        yield Row([_SHARED], ["source_embedding.weight"])
    else:
        yield Row([_SOURCE], ["source_embedding.weight"])
        yield Row([_TARGET], ["target_embedding.weight"])
    if config.share == "none":
        yield Row([_OUTPUT], ["output.weight"])
    for stack, count, layer in (
        ("encoder", config.encoder_layers, _LAYER),
        ("decoder", config.decoder_layers, _DECODER_LAYER),
    ):
        for prefix in (f"{stack}.layers.{i}." for i in range(count)):
            for our, theirs in layer.items():
                for kind in ("weight", "bias"):
                    yield Row([f"model.{prefix}{their}{kind}" for their in theirs], [f"{prefix}{our}{kind}"])


def _copies(config: TransformerConfig) -> dict[str, str]:
    """Return the names under which Marian's state dict repeats a tensor, and the tensor's own name."""
    if config.share == "all":
        return dict.fromkeys((_SOURCE, _TARGET, _OUTPUT), _SHARED)
    return {_OUTPUT: _TARGET} if config.share == "target" else {}


def _order(d_model: int) -> Tensor:
    """Return, for each of their dimensions, ours: the even ones, which are sines, first."""
    dimensions = torch.arange(d_model)
    return torch.cat((dimensions[0::2], dimensions[1::2]))


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Return one of their tensors with the dimensions of the model in this order."""
    reads = any(part in name for part in _READS_THE_RESIDUAL)
    if reads and name.endswith(".bias"):
        return tensor
    axis = 1 if reads or name in (_SHARED, _SOURCE, _TARGET, _OUTPUT) else 0
    if tensor.dim() <= axis or tensor.size(axis) != len(order):
        return tensor  # of a wrong shape, which is refused when shapes are compared
    return tensor.index_select(axis, order.to(tensor.device))


def _equal(first: Tensor, second: Tensor | None) -> bool:
    return second is not None and first.shape == second.shape and torch.allclose(first, second, atol=1e-5)
