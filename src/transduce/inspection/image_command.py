"""What ``transduce vision inspect`` does: attention over an image, as a picture or a page."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from transduce import artifact
from transduce.data.image_files import read_for_model
from transduce.errors import require_matplotlib
from transduce.inspection.heat_map import drawing
from transduce.inspection.image_attention import ImageAttention, inspect_image
from transduce.inspection.image_page import page
from transduce.inspection.output_files import keep, keep_apart, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = Path("attention.png")


def inspect_file(model: Path, image: Path, png: Path | None, out: Path | None) -> Iterator[Path]:
    """Gives each file as soon as it is written."""
    require_matplotlib("attention maps")
    picture = png or (None if out else PICTURE)
    keep_apart(out, picture)
    keep(out, "page", image)
    keep(picture, "picture", image)
    vit = artifact.load_as(model, "vit")
    found = inspect_image(vit, torch.from_numpy(read_for_model([image], vit.config.size, vit.channels)[0]))
    if out:
        write(out, page(found, image.name))
        yield out
    if picture:
        write(picture, draw(found, warn=Console(stderr=True).print))
        yield picture


def draw(found: ImageAttention, warn: Callable[[str], object] = lambda _: None) -> bytes:
    """A PNG: the image, its rollout, and a row of heads for each layer."""
    from matplotlib.figure import Figure

    layers, heads = found.maps.shape[:2]
    with drawing(found.guess, warn):
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
