"""Attention over an image as heat maps, in PNG format."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional as F

from transduce.inspection.color_scale import shared_top
from transduce.inspection.heat_map import drawing
from transduce.inspection.image_attention import ImageAttention
from transduce.inspection.image_page import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


def draw(attention: ImageAttention, warn: Callable[[str], object] = lambda _: None) -> bytes:
    """Return a PNG image: the image, its rollout, and a row of heads for each layer."""
    from matplotlib.figure import Figure

    layers, heads = attention.maps.shape[:2]
    with drawing(attention.label, warn):
        columns = max(2, heads)
        figure = Figure(figsize=(1.5 * columns, 1.6 * (layers + 1)), layout="constrained", dpi=120)
        axes = figure.subplots(layers + 1, columns, squeeze=False)
        for cell in axes.flat:
            cell.set_axis_off()
        top = shared_top(attention.maps)  # one scale, so that heads are comparable
        _show(
            axes[0][0], attention, None, f"{attention.label}, {attention.probability:.0%}".replace("$", r"\$")
        )
        peak = float(attention.rollout.max())
        _show(axes[0][1], attention, attention.rollout, f"rollout, 0 to {peak:.3f}", peak)
        for layer in range(layers):
            for head in range(heads):
                title = f"{layer + 1}.{head + 1}"
                image = _show(axes[layer + 1][head], attention, attention.maps[layer, head], title, top)
        figure.colorbar(image, ax=axes[1:], label="weight (layer.head)", extend="max", shrink=0.7)
        return _png(figure)


def _show(
    axes: Any, attention: ImageAttention, weights: Tensor | None, title: str, top: float = 1.0
) -> "AxesImage":
    pixels = attention.pixels.numpy()
    gray = pixels.shape[2] != 3
    image = axes.imshow(pixels[..., 0] if gray else pixels, cmap="gray" if gray else None, vmin=0, vmax=255)
    if weights is not None:
        large = F.interpolate(weights[None, None], size=pixels.shape[:2], mode="nearest")[0, 0]
        image = axes.imshow(large.numpy(), cmap=COLORS, alpha=0.7, vmin=0, vmax=top)
    axes.set_title(title, fontsize=8)
    return image  # type: ignore[no-any-return]


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
