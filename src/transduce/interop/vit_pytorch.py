"""Import from and export to the Vision Transformer of ``lucidrains/vit-pytorch``.

The names are those of its versions with ``PreNorm`` wrappers. Later versions, which also normalize the
patches or the end of the stack, are another model and are refused.
"""

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any

from torch import Tensor

from transduce.config import ViTConfig, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.build import build
from transduce.models.vit import ViT

# theirs → ours, inside a layer and around the layers
_LAYER = {
    "0.norm": "around_self_attention.norm",
    "0.fn.to_qkv": "self_attention.query_key_value",
    "0.fn.to_out.0": "self_attention.output",
    "1.norm": "around_feed_forward.norm",
    "1.fn.net.0": "feed_forward.inner",
    "1.fn.net.3": "feed_forward.outer",
}
_AROUND = {"to_patch_embedding.1": "embedding", "mlp_head.0": "norm", "mlp_head.1": "head"}
# theirs → ours; theirs have leading dimensions of size 1
_TOKENS = {"pos_embedding": "positions.weight", "cls_token": "class_token"}


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
    _check(model.config)
    ours = dict(model.named_parameters())
    import_rows(
        model,
        _table(model.config),
        {name: _without_ones(name, tensor, ours) for name, tensor in state.items()},
    )


def export_vit(model: ViT) -> dict[str, Tensor]:
    """Return a state dict for a ``vit_pytorch.ViT`` of the same sizes."""
    _check(model.config)
    state = export_rows(model, _table(model.config))
    return {**state, **{name: state[name].view(1, -1, model.config.d_model) for name in _TOKENS}}


def _table(config: ViTConfig) -> Iterator[Row]:
    for theirs, ours in _TOKENS.items():
        yield Row([theirs], [ours])
    for kind in ("weight", "bias"):
        for theirs, ours in _AROUND.items():
            yield Row([f"{theirs}.{kind}"], [f"{ours}.{kind}"])
        for i in range(config.layers):
            for theirs, ours in _LAYER.items():
                if kind == "weight" or theirs != "0.fn.to_qkv":
                    yield Row(
                        [f"transformer.layers.{i}.{theirs}.{kind}"], [f"encoder.layers.{i}.{ours}.{kind}"]
                    )


def _without_ones(name: str, tensor: Tensor, ours: Mapping[str, Tensor]) -> Tensor:
    """Remove leading dimensions of positions (1, tokens, d_model) and of the class token (1, 1, d_model)."""
    if name in _TOKENS and tensor.dim() == 3 and len(tensor) == 1:
        return tensor.flatten(0, tensor.dim() - ours[_TOKENS[name]].dim())
    return tensor


def _check(config: ViTConfig) -> None:
    theirs = {"norm": "pre", "pooling": "class", "positions": "learned", "qkv_bias": False}
    for key, value in theirs.items():
        if getattr(config, key) != value:
            raise ConfigError(
                f"vit-pytorch has {key} = {value!r}, but the model has {getattr(config, key)!r}",
                f"use a model with {key} = {value!r}",
            )
    if config.activation == "swiglu" or config.norm_epsilon != 1e-5:
        raise ConfigError(
            f"vit-pytorch has no {config.activation} with norm_epsilon = {config.norm_epsilon}",
            "use a model with relu or gelu, and norm_epsilon = 1e-5",
        )


def _sizes(state: Mapping[str, Tensor], heads: int, channels: int) -> dict[str, Any]:
    try:
        tokens, d_model = state["pos_embedding"].shape[-2:]
        pixels = state["to_patch_embedding.1.weight"].shape[1]
        inner = state["transformer.layers.0.0.fn.to_qkv.weight"].shape[0]
        d_ff = state["transformer.layers.0.1.fn.net.0.weight"].shape[0]
        classes = state["mlp_head.1.weight"].shape[0]
    except (KeyError, ValueError, IndexError) as error:
        raise ArtifactError(
            f"these are not weights of vit-pytorch with PreNorm wrappers: {error}", "give another file"
        ) from None
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
    }
