"""Where a Vision Transformer looks: attention over the patches of an image."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce import artifact
from transduce.data.image_files import read_for_model
from transduce.errors import TransduceError, require_matplotlib
from transduce.inspection.heads import evaluating
from transduce.models.vit import ViT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = Path("attention.png")


@dataclass(frozen=True)
class ImageAttention:
    """One image through a model."""

    pixels: Tensor  # (height, width, channels), bytes
    maps: Tensor  # (layers, heads, rows, columns): what is looked at, as shares of all attention
    rollout: Tensor  # (rows, columns), the same through all layers
    guess: str
    probability: float


@torch.no_grad()
def inspect_image(model: ViT, pixels: Tensor) -> ImageAttention:
    """Pixels (height, width, channels).

    A map is the class token's attention to the patches; without such a token, the mean over all queries.
    """
    record: list[Tensor] = []
    with evaluating(model):
        shares = model(pixels[None].to(model.device), record).float().softmax(dim=-1)[0].cpu()
    weights = torch.stack([layer[0] for layer in record]).float().cpu()  # (layers, heads, token, token)
    has_token, grid = model.class_token is not None, model.config.grid

    def on_grid(attention: Tensor) -> Tensor:
        """(…, query, key) → (…, rows, columns)."""
        seen = attention[..., 0, 1:] if has_token else attention.mean(dim=-2)
        return seen.reshape(*seen.shape[:-1], *grid)

    best = int(shares.argmax())
    return ImageAttention(
        pixels,
        on_grid(weights),
        on_grid(attention_rollout(weights)),
        model.config.class_names[best],
        float(shares[best]),
    )


def attention_rollout(weights: Tensor) -> Tensor:
    """How much of each token's input has come to each token of the last layer (Abnar & Zuidema, 2020).

    Weights (layers, heads, token, token) → (token, token). Heads are averaged; the residual connection
    hands on as much as attention does: ``½ A + ½ I``, multiplied up layer by layer.
    """
    tokens = weights.size(-1)
    flow = torch.eye(tokens)
    for layer in weights.mean(dim=1):
        flow = (0.5 * layer + 0.5 * torch.eye(tokens)) @ flow
    return flow


def inspect_file(model: Path, image: Path, png: Path | None, out: Path | None) -> Iterator[Path]:
    """What ``transduce vision inspect`` does: gives each file as soon as it is written."""
    require_matplotlib("attention maps")
    vit = artifact.load_vit(model)
    found = inspect_image(vit, torch.from_numpy(read_for_model([image], vit.config.size, vit.channels)[0]))
    if out is not None:
        from transduce.inspection.image_page import page

        yield _write(out, page(found, image.name).encode())
    if png is not None or out is None:
        yield _write(png or PICTURE, draw(found))


def draw(found: ImageAttention) -> bytes:
    """A PNG: the image, its rollout, and a row of heads for each layer."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    layers, heads = found.maps.shape[:2]
    with mpl.rc_context(mpl.rcParamsDefault):
        columns = max(2, heads)
        figure = Figure(figsize=(1.5 * columns, 1.6 * (layers + 1)), layout="constrained", dpi=120)
        axes = figure.subplots(layers + 1, columns, squeeze=False)
        for one in axes.flat:
            one.set_axis_off()
        _show(axes[0][0], found, None, f"{found.guess}, {found.probability:.0%}".replace("$", r"\$"))
        _show(axes[0][1], found, found.rollout, "rollout")
        for layer in range(layers):
            for head in range(heads):
                _show(axes[layer + 1][head], found, found.maps[layer, head], f"{layer + 1}.{head + 1}")
        return _png(figure)


def _show(axes: Any, found: ImageAttention, weights: Tensor | None, title: str) -> None:
    pixels = found.pixels.numpy()
    grey = pixels.shape[2] != 3
    axes.imshow(pixels[..., 0] if grey else pixels, cmap="gray" if grey else None, vmin=0, vmax=255)
    if weights is not None:
        # Each map from its own least to its own most: between heads, shapes are compared and not heights.
        large = F.interpolate(weights[None, None], size=pixels.shape[:2], mode="nearest")[0, 0]
        axes.imshow(large.numpy(), cmap="inferno", alpha=0.7)
    axes.set_title(title, fontsize=8)


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _write(path: Path, content: bytes) -> Path:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise TransduceError(f"cannot write {path}: {error.strerror}", "choose another place") from error
    return path
