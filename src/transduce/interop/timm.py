"""Import from and export to the Vision Transformers of the library timm (``vit_*`` and ``deit_*``).

A folder of the Hugging Face Hub has a ``config.json`` with the name of the architecture. A file of weights
alone does not say the number of heads, which follows from the width in all of timm's own architectures.
"""

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from transduce.artifact.tensors import read_tensor_header, read_tensors
from transduce.config import ViTConfig, validate
from transduce.errors import ArtifactError, ConfigError, reason_of
from transduce.interop.hugging_face import read_fields
from transduce.interop.hugging_face_weights import CONFIG, WEIGHTS
from transduce.interop.imported import Format, Imported
from transduce.interop.vit_tables import ViTNames, class_names, export_named, import_named, require_settings
from transduce.models.build import build
from transduce.models.vit import ViT

HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16, 1408: 16, 1664: 16}  # by width
EPSILON = 1e-6  # of all their layer norms
_PATCHES, _POSITIONS, _CLASS = "patch_embed.proj", "pos_embed", "cls_token"
_LAYER = {
    "around_self_attention.norm": ["norm1"],
    "self_attention.query_key_value": ["attn.qkv"],
    "self_attention.output": ["attn.proj"],
    "around_feed_forward.norm": ["norm2"],
    "feed_forward.inner": ["mlp.fc1"],
    "feed_forward.outer": ["mlp.fc2"],
}


def recognises(path: Path) -> bool:
    """Return whether this is a folder that names an architecture, or a file with timm's tensors."""
    try:
        if path.is_dir():
            fields = read_fields(path)
            return (
                str(fields.get("architecture")).startswith(("vit_", "deit_")) and "model_type" not in fields
            )
        return path.suffix == ".safetensors" and f"{_PATCHES}.weight" in read_tensor_header(path).tensors
    except (ArtifactError, OSError, SafetensorError):
        return False


def read_timm(path: Path) -> Imported:
    """Read a folder of the Hugging Face Hub, or a file of weights."""
    fields = read_fields(path) if path.is_dir() else {}
    file = path / WEIGHTS if path.is_dir() else path
    try:
        state = read_tensors(file)
    except OSError as error:
        raise ArtifactError(
            f"cannot read {file}: {reason_of(error)}", f"give a folder with {CONFIG} and {WEIGHTS}"
        ) from error
    except SafetensorError as error:
        raise ArtifactError(f"{file} is damaged: {error}", "copy it again") from error
    known: Any = fields.get("pretrained_cfg") or {}
    arguments: Any = fields.get("model_args") or {}
    if not isinstance(known, dict) or not isinstance(arguments, dict):
        raise ArtifactError(f"{path / CONFIG} has no tables of settings", "copy the folder again")
    model = vit_from_timm(
        state,
        heads=arguments.get("num_heads"),
        labels=fields.get("label_names") or known.get("label_names"),
        mean=known.get("mean", [0.5, 0.5, 0.5] if not fields else None),
        std=known.get("std", [0.5, 0.5, 0.5] if not fields else None),
    )
    notes = (
        () if fields else ("the file does not say how pixels are normalised: mean 0.5 and std 0.5 assumed",)
    )
    return Imported(model, None, notes)


def vit_from_timm(
    state: Mapping[str, Tensor],
    *,
    heads: int | None = None,
    labels: list[str] | None = None,
    mean: list[float] | None = None,
    std: list[float] | None = None,
) -> ViT:
    """Build a model from a state dict of timm; its number of heads follows from the width if not given."""
    try:
        width, channels, side, _ = state[f"{_PATCHES}.weight"].shape
        tokens = state[_POSITIONS].shape[1]
        d_ff = len(state["blocks.0.mlp.fc1.weight"])
        classes = len(state["head.weight"])
    except (KeyError, ValueError, IndexError) as error:
        raise ArtifactError(
            f"these are not weights of a Vision Transformer of timm with classes: {error}",
            "give another file",
        ) from None
    if heads is None and width not in HEADS:
        raise ArtifactError(
            f"the number of heads of a model of width {width} is unknown",
            "give it: transduce.interop.timm.vit_from_timm(state, heads=…)",
        )
    data = {
        "image_size": isqrt(tokens - (_CLASS in state)) * side,
        "patch_size": side,
        "channels": channels,
        "classes": class_names(labels, classes),
        "mean": None if mean is None else list(mean),
        "std": None if std is None else list(std),
        "layers": len({name.split(".")[1] for name in state if name.startswith("blocks.")}),
        "d_model": width,
        "d_ff": d_ff,
        "heads": heads or HEADS[width],
        "dropout": 0.0,
        "norm_epsilon": EPSILON,
        "qkv_bias": "blocks.0.attn.qkv.bias" in state,
        "pooling": "class" if _CLASS in state else "mean",
    }
    model = build(validate(ViTConfig, data, where="the weights of timm")).eval()
    import_timm(model, state)
    return model


def import_timm(model: ViT, state: Mapping[str, Tensor]) -> None:
    """Copy a Vision Transformer of timm, of the same sizes, into the model."""
    import_named(model, _names(model.config), state)


def export_timm(model: ViT) -> dict[str, Tensor]:
    """Return the state dict of timm's ``VisionTransformer`` of the same sizes: the same logits."""
    return export_named(model, _names(model.config))


def _names(config: ViTConfig) -> ViTNames:
    """Return the table; the mean over patches has its norm after it, under another name."""
    needed = {"norm": "pre", "positions": "learned", "patch_norm": False, "norm_epsilon": EPSILON}
    require_settings(config, {**needed, "d_k": None, "d_v": None}, "timm")
    if config.activation != "gelu":
        raise ConfigError(f"timm has no {config.activation} here", "use a model with gelu")
    pooled = config.pooling == "class"
    return ViTNames(
        tokens={_POSITIONS: "positions.weight", **({_CLASS: "class_token"} if pooled else {})},
        around={_PATCHES: "embedding", "norm" if pooled else "fc_norm": "norm", "head": "head"},
        layers="blocks.{}.",
        layer=_LAYER,
        convolution=f"{_PATCHES}.weight",
    )


FORMAT = Format("timm", "a Vision Transformer of timm", recognises, read_timm)
