"""Import from and export to ``ViTForImageClassification`` of Hugging Face transformers.

Their patches are cut by a convolution, whose kernels are (channels, rows, columns); ours are in the order
of pixels with the channels side by side.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from transduce.config import ViTConfig
from transduce.errors import ConfigError
from transduce.interop.hugging_face import require_norm, their_activation
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.vit import ViT

# ours → theirs, inside a layer; several of theirs are concatenated
_LAYER = {
    "around_self_attention.norm.": ["layernorm_before."],
    "self_attention.query_key_value.": [f"attention.attention.{name}." for name in ("query", "key", "value")],
    "self_attention.output.": ["attention.output.dense."],
    "around_feed_forward.norm.": ["layernorm_after."],
    "feed_forward.inner.": ["intermediate.dense."],
    "feed_forward.outer.": ["output.dense."],
}
_EMBEDDINGS = "vit.embeddings."
_CLASS, _POSITIONS = f"{_EMBEDDINGS}cls_token", f"{_EMBEDDINGS}position_embeddings"
_PATCHES = f"{_EMBEDDINGS}patch_embeddings.projection."


def their_fields(config: ViTConfig) -> dict[str, Any]:
    """Return the fields of ``config.json`` for the same model."""
    _check(config)
    height, width = config.size
    names = config.class_names
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.d_ff,
        "hidden_act": their_activation(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_epsilon,
        "qkv_bias": config.qkv_bias,
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def export_vit(model: ViT) -> dict[str, Tensor]:
    """Return the tensors of ``model.safetensors``: the same logits for normalised images."""
    config = model.config
    _check(config)
    state = export_rows(model, _table(config))
    side, kernel = model.patch, f"{_PATCHES}weight"
    state[kernel] = state[kernel].view(-1, side, side, model.channels).permute(0, 3, 1, 2)
    state[_CLASS] = state[_CLASS].view(1, 1, -1)
    state[_POSITIONS] = state[_POSITIONS][None]
    return state


def import_vit(model: ViT, state: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a ``model.safetensors`` of the same sizes into the model."""
    _check(model.config)
    left, kernel = dict(state), f"{_PATCHES}weight"
    if kernel in left and left[kernel].dim() == 4:
        left[kernel] = left[kernel].permute(0, 2, 3, 1).flatten(1)
    for name, dimensions in ((_CLASS, 1), (_POSITIONS, 2)):
        if name in left and left[name].dim() == 3 and len(left[name]) == 1:
            left[name] = left[name].flatten(0, 3 - dimensions)
    import_rows(model, _table(model.config), left)


def _table(config: ViTConfig) -> Iterator[Row]:
    yield Row([_CLASS], ["class_token"])
    yield Row([_POSITIONS], ["positions.weight"])
    parts = {"embedding.": [_PATCHES], "norm.": ["vit.layernorm."], "head.": ["classifier."]}
    for i in range(config.layers):
        for our, theirs in _LAYER.items():
            parts[f"encoder.layers.{i}.{our}"] = [f"vit.encoder.layer.{i}.{their}" for their in theirs]
    for our, theirs in parts.items():
        for kind in ("weight", "bias"):
            if kind == "weight" or config.qkv_bias or "query_key_value" not in our:
                yield Row([f"{their}{kind}" for their in theirs], [f"{our}{kind}"])


def _check(config: ViTConfig) -> None:
    require_norm(config.norm, "pre", "vit")
    width = config.d_model / config.heads
    for name, fits in (
        ("pooling", config.pooling == "class"),
        ("positions", config.positions == "learned"),
        ("activation", config.activation != "swiglu"),
        ("d_k", config.d_k in (None, width)),
        ("d_v", config.d_v in (None, width)),
    ):
        if not fits:
            raise ConfigError(
                f"ViTForImageClassification cannot have {name} = {getattr(config, name)!r}",
                "use another format",
            )
