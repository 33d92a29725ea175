"""Import from and export to the Vision Transformer of ``lucidrains/vit-pytorch``.

The names are those of its versions with ``PreNorm`` wrappers, and of later ones, which have norms around the
embedding of patches (`patch_norm`) and the last norm at the end of the stack.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any

from torch import Tensor

from transduce.config import ViTConfig, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.vit_tables import ViTNames, export_named, import_named, require_settings
from transduce.models.build import build
from transduce.models.vit import ViT

_TOKENS = {"pos_embedding": "positions.weight", "cls_token": "class_token"}
_WRAPPED = ViTNames(
    tokens=_TOKENS,
    around={"to_patch_embedding.1": "embedding", "mlp_head.0": "norm", "mlp_head.1": "head"},
    layers="transformer.layers.{}.",
    layer={
        "around_self_attention.norm": ["0.norm"],
        "self_attention.query_key_value": ["0.fn.to_qkv"],
        "self_attention.output": ["0.fn.to_out.0"],
        "around_feed_forward.norm": ["1.norm"],
        "feed_forward.inner": ["1.fn.net.0"],
        "feed_forward.outer": ["1.fn.net.3"],
    },
)
_LATER = ViTNames(
    tokens=_TOKENS,
    around={
        "to_patch_embedding.1": "pixel_norm",
        "to_patch_embedding.2": "embedding",
        "to_patch_embedding.3": "patch_norm",
        "transformer.norm": "norm",
        "mlp_head": "head",
    },
    layers="transformer.layers.{}.",
    layer={
        "around_self_attention.norm": ["0.norm"],
        "self_attention.query_key_value": ["0.to_qkv"],
        "self_attention.output": ["0.to_out.0"],
        "around_feed_forward.norm": ["1.net.0"],
        "feed_forward.inner": ["1.net.1"],
        "feed_forward.outer": ["1.net.4"],
    },
)


def vit_from_state(
    state: Mapping[str, Tensor],
    *,
    heads: int,
    channels: int = 1,
    image_size: int | list[int] | None = None,
    classes: list[str] | None = None,
    activation: str = "gelu",
    mean: list[float] | None = None,
    std: list[float] | None = None,
) -> ViT:
    """Build a model from the state dict of a ``vit_pytorch.ViT``.

    The arguments are options of `ViTConfig` that cannot be derived from the weights. ``image_size`` is needed
    if images are not square, and ``classes`` gives the classes names.
    """
    sizes = _sizes(state, heads, channels)
    sizes |= {"activation": activation, "mean": mean, "std": std}
    sizes |= {"image_size": image_size} if image_size else {}
    sizes |= {"classes": classes} if classes else {}
    model = build(validate(ViTConfig, sizes, where="the weights of vit-pytorch")).eval()
    import_vit(model, state)
    return model


def import_vit(model: ViT, state: Mapping[str, Tensor]) -> None:
    """Copy all weights of a ``vit_pytorch.ViT`` of the same sizes into the model."""
    import_named(model, _names(model.config), state)


def export_vit(model: ViT) -> dict[str, Tensor]:
    """Return a state dict for a ``vit_pytorch.ViT`` of the same sizes."""
    return export_named(model, _names(model.config))


def _names(config: ViTConfig) -> ViTNames:
    _check(config)
    return _LATER if config.patch_norm else _WRAPPED


def _check(config: ViTConfig) -> None:
    needed = {"norm": "pre", "pooling": "class", "positions": "learned", "qkv_bias": False}
    require_settings(config, needed, "vit-pytorch")
    if config.activation == "swiglu" or config.norm_epsilon != 1e-5:
        raise ConfigError(
            f"vit-pytorch has no {config.activation} with norm_epsilon = {config.norm_epsilon}",
            "use a model with relu or gelu, and norm_epsilon = 1e-5",
        )


def _sizes(state: Mapping[str, Tensor], heads: int, channels: int) -> dict[str, Any]:
    later = "to_patch_embedding.2.weight" in state
    names = _LATER if later else _WRAPPED
    modules = {ours: theirs for theirs, ours in names.around.items()}
    layer = {ours: f"{names.layers.format(0)}{theirs[0]}.weight" for ours, theirs in names.layer.items()}
    try:
        tokens, d_model = state["pos_embedding"].shape[-2:]
        pixels = state[f"{modules['embedding']}.weight"].shape[1]
        inner = state[layer["self_attention.query_key_value"]].shape[0]
        d_ff = state[layer["feed_forward.inner"]].shape[0]
        classes = state[f"{modules['head']}.weight"].shape[0]
    except (KeyError, ValueError, IndexError) as error:
        raise ArtifactError(f"these are not weights of vit-pytorch: {error}", "give another file") from None
    patch = isqrt(pixels // channels)
    numbers = {name.split(".")[2] for name in state if name.startswith("transformer.layers.")}
    return {
        "image_size": isqrt(tokens - 1) * patch,
        "patch_size": patch,
        "channels": channels,
        "classes": classes,
        "layers": len(numbers),
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": heads,
        "d_k": inner // 3 // heads,
        "d_v": inner // 3 // heads,
        "qkv_bias": False,
        "patch_norm": later,
    }
