"""Attention over an image as a self-contained HTML page."""

import base64
import html
import io

import torch
from torch import Tensor

from transduce.inspection.image_attention import ImageAttention
from transduce.inspection.render import fill, read


def page(attention: ImageAttention, name: str) -> str:
    """Return a page with the image, its rollout and every head; a slider blends image and attention."""
    figures = [_figure(attention.rollout, "rollout", "")]
    for layer, heads in enumerate(attention.maps, start=1):
        figures.append(f"<h2>Layer {layer}</h2>")
        for head, weights in enumerate(heads, start=1):
            figures.append(_figure(weights, f"head {head}", f"layer {layer}, "))
    height, width = attention.pixels.shape[:2]
    parts = {
        "style": read("base.css"),
        "ratio": f"{width} / {height}",
        "image": _data(_rgb(attention.pixels)),
        "name": html.escape(name),
        "prediction": html.escape(f"{attention.label}, {attention.probability:.1%}"),
        "figures": "\n".join(figures),
    }
    return fill("image.html", parts)


def _figure(weights: Tensor, caption: str, where: str) -> str:
    image = f'<img alt="attention: {where}{caption}" src="{_data(_heat(weights))}">'
    return f'<figure><div class="map">{image}</div><figcaption>{caption}</figcaption></figure>'


def _rgb(pixels: Tensor) -> Tensor:
    return pixels if pixels.size(2) == 3 else pixels[..., :1].expand(-1, -1, 3)


def _heat(weights: Tensor) -> Tensor:
    """Color a map, scaled to its own range: (rows, columns) → (rows, columns, 3) bytes."""
    import matplotlib as mpl

    span = weights.max() - weights.min()
    share = (weights - weights.min()) / (span if span > 0 else 1)
    return torch.from_numpy(mpl.colormaps["inferno"](share.numpy(), bytes=True)[..., :3].copy())


def _data(pixels: Tensor) -> str:
    """Return a data URL of a PNG image."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, pixels.contiguous().numpy(), format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
