"""Import from and export to ``ViTForImageClassification`` of Hugging Face transformers.

The names are those of its files; newer versions give the modules other names, but not the files.
"""

from collections.abc import Mapping
from math import isclose
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.config import ViTConfig, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.files import user_path
from transduce.interop.hugging_face import (
    activation,
    read_object,
    read_saved,
    require_norm,
    their_activation,
)
from transduce.interop.vit_tables import ViTNames, class_names, export_named, import_named, require_settings
from transduce.models.build import build
from transduce.models.vit import ViT

PREPROCESSOR = "preprocessor_config.json"
_BODY, _HEAD = "vit.", "classifier"
_PATCHES = f"{_BODY}embeddings.patch_embeddings.projection"
_NAMES = ViTNames(
    tokens={
        f"{_BODY}embeddings.position_embeddings": "positions.weight",
        f"{_BODY}embeddings.cls_token": "class_token",
    },
    around={_PATCHES: "embedding", f"{_BODY}layernorm": "norm", _HEAD: "head"},
    layers=f"{_BODY}encoder.layer.{{}}.",
    layer={
        "around_self_attention.norm": ["layernorm_before"],
        "self_attention.query_key_value": [
            "attention.attention.query",
            "attention.attention.key",
            "attention.attention.value",
        ],
        "self_attention.output": ["attention.output.dense"],
        "around_feed_forward.norm": ["layernorm_after"],
        "feed_forward.inner": ["intermediate.dense"],
        "feed_forward.outer": ["output.dense"],
    },
    convolution=f"{_PATCHES}.weight",
)


def load_vit(folder: str | Path) -> ViT:
    """Load the model of a folder with ``config.json`` and ``model.safetensors``, in evaluation mode.

    ``preprocessor_config.json`` says how pixels are normalised.
    """
    fields, state = read_saved(folder, "vit")
    if f"{_HEAD}.weight" not in state:
        raise ArtifactError(f"{folder} holds a model without classes", "give a ViTForImageClassification")
    pixels = read_object(user_path(folder) / PREPROCESSOR)
    model = build(our_config(fields, len(state[f"{_HEAD}.weight"]), pixels))
    import_vit(model, state)
    return model.eval()


def our_config(fields: Mapping[str, Any], classes: int, pixels: Mapping[str, Any]) -> ViTConfig:
    """Return the configuration that corresponds to the fields of a ``ViTConfig`` and of the preprocessor."""
    factor = pixels.get("rescale_factor", 1 / 255) if pixels.get("do_rescale", True) else 1.0
    if not isinstance(factor, float) or not isclose(factor, 1 / 255, rel_tol=1e-3):
        raise ConfigError(f"pixels are multiplied by {factor}", "use a model that reads pixels from 0 to 1")
    normalised = pixels.get("do_normalize", True)
    data = {
        "image_size": fields.get("image_size", 224),
        "patch_size": fields.get("patch_size", 16),
        "channels": fields.get("num_channels", 3),
        "classes": class_names(fields.get("id2label"), classes),
        "mean": pixels.get("image_mean") if normalised else None,
        "std": pixels.get("image_std") if normalised else None,
        "layers": fields["num_hidden_layers"],
        "d_model": fields["hidden_size"],
        "d_ff": fields["intermediate_size"],
        "heads": fields["num_attention_heads"],
        "dropout": fields.get("hidden_dropout_prob", 0.0),
        "attention_dropout": fields.get("attention_probs_dropout_prob", 0.0),
        "activation": activation(fields, "hidden_act", "gelu"),
        "norm_epsilon": fields.get("layer_norm_eps", 1e-12),
        "qkv_bias": fields.get("qkv_bias", True),
    }
    return validate(ViTConfig, data, where="the vit model")


def their_fields(config: ViTConfig) -> dict[str, Any]:
    """Return the fields of their ``ViTConfig`` for the same model."""
    _check(config)
    size = config.size
    return {
        "model_type": "vit",
        "image_size": size[0] if size[0] == size[1] else list(size),
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        "id2label": dict(enumerate(config.class_names)),
        "num_hidden_layers": config.layers,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_attention_heads": config.heads,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "hidden_act": their_activation(config.activation),
        "layer_norm_eps": config.norm_epsilon,
        "qkv_bias": config.qkv_bias,
    }


def export_vit(model: ViT) -> dict[str, Tensor]:
    """Return the content of the file of a ``ViTForImageClassification`` with `their_fields`."""
    _check(model.config)
    return export_named(model, _NAMES)


def import_vit(model: ViT, state: Mapping[str, Tensor]) -> None:
    """Copy the file of a ``ViTForImageClassification`` of the same sizes into the model."""
    _check(model.config)
    import_named(model, _NAMES, state)


def _check(config: ViTConfig) -> None:
    require_norm(config.norm, "pre", "vit")
    needed = {"pooling": "class", "positions": "learned", "patch_norm": False, "d_k": None, "d_v": None}
    require_settings(config, needed, "vit")
