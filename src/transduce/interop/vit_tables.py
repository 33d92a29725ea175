"""What the formats of Vision Transformers have in common: names, class tokens, patches as convolutions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from transduce.config import ViTConfig
from transduce.errors import ConfigError
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.vit import ViT


@dataclass(frozen=True)
class ViTNames:
    """Names of a format's tensors; those of modules are without ``.weight`` and ``.bias``."""

    tokens: dict[str, str]  # theirs → ours; theirs may have leading dimensions of size 1
    around: dict[str, str]  # theirs → ours
    layers: str  # beginning of the names in layer {}
    layer: dict[str, list[str]]  # ours → theirs, which are concatenated
    convolution: str | None = None  # theirs, if patches are embedded by a convolution

    def rows(self, config: ViTConfig) -> Iterator[Row]:
        """Yield the rows of the table."""
        for theirs, ours in self.tokens.items():
            yield Row([theirs], [ours])
        for kind in ("weight", "bias"):
            for theirs, ours in self.around.items():
                yield Row([f"{theirs}.{kind}"], [f"{ours}.{kind}"])
            for i in range(config.layers):
                for ours, names in self.layer.items():
                    if kind == "weight" or config.qkv_bias or "query_key_value" not in ours:
                        theirs_of_layer = [f"{self.layers.format(i)}{name}.{kind}" for name in names]
                        yield Row(theirs_of_layer, [f"encoder.layers.{i}.{ours}.{kind}"])


def import_named(model: ViT, names: ViTNames, state: Mapping[str, Tensor]) -> None:
    """Copy all tensors of a format into a model of the same sizes."""
    ours = dict(model.named_parameters())
    left = {name: _without_ones(name, tensor, names, ours) for name, tensor in state.items()}
    weight = None if names.convolution is None else left.get(names.convolution)
    if names.convolution is not None and weight is not None and weight.dim() == 4:
        left[names.convolution] = weight.permute(0, 2, 3, 1).flatten(1)
    import_rows(model, names.rows(model.config), left)


def export_named(model: ViT, names: ViTNames, *, ones: bool = True) -> dict[str, Tensor]:
    """Return a format's tensors with the model's values, with leading dimensions of size 1 if ``ones``."""
    state, side = export_rows(model, names.rows(model.config)), model.patch
    if names.convolution is not None:
        linear = state[names.convolution].view(-1, side, side, model.channels)
        state[names.convolution] = linear.permute(0, 3, 1, 2).contiguous()
    if ones:
        state |= {name: state[name].view(1, -1, model.config.d_model) for name in names.tokens}
    return state


def _without_ones(name: str, tensor: Tensor, names: ViTNames, ours: Mapping[str, Tensor]) -> Tensor:
    """Remove leading dimensions of positions (1, tokens, d_model) and of the class token (1, 1, d_model)."""
    wanted = ours.get(names.tokens.get(name, ""))
    while wanted is not None and tensor.dim() > wanted.dim() and len(tensor) == 1:
        tensor = tensor[0]
    return tensor


def require_settings(config: ViTConfig, theirs: Mapping[str, object], kind: str) -> None:
    """Refuse a model in which one of these settings has another value."""
    for key, value in theirs.items():
        if getattr(config, key) != value:
            raise ConfigError(
                f"{kind} has {key} = {value!r}, but the model has {getattr(config, key)!r}",
                f"use a model with {key} = {value!r}",
            )


def class_names(labels: object, count: int) -> int | list[str]:
    """Return the names of classes by their numbers; a name that occurs twice gets its number, too.

    ``labels`` is a table from numbers to names, or a list; without names, the number of classes is returned.
    """
    if isinstance(labels, list):
        labels = {str(number): name for number, name in enumerate(labels)}
    if not isinstance(labels, dict) or not labels:
        return count
    names = [str(labels.get(str(number), number)) for number in range(count)]
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names)]
