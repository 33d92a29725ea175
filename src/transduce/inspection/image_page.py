"""Attention over an image as one HTML file that needs nothing from elsewhere."""

import base64
import html
import io

import torch
from torch import Tensor

from transduce.inspection.image_attention import ImageAttention

_PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }}
figure {{ display: inline-block; margin: 0 .6em .8em 0; text-align: center }}
figcaption {{ font-size: 12px; color: #555 }}
div.map {{ position: relative; width: 112px; aspect-ratio: {ratio} }}
div.map img {{ position: absolute; inset: 0; width: 100%; height: 100%; image-rendering: pixelated }}
div.map img + img {{ opacity: var(--over, .7) }}
</style>
<h1>{title}</h1>
<p>{guess}</p>
<p><label>attention over the image <input type="range" min="0" max="1" step=".05" value=".7"
oninput="document.body.style.setProperty('--over', this.value)"></label></p>
{figures}
</html>
"""


def page(found: ImageAttention, name: str) -> str:
    """The image, its rollout, and every head of every layer; a slider mixes image and attention."""
    image = _data(_picture(found.pixels))
    figures = [_figure(image, None, "the image"), _figure(image, found.rollout, "rollout")]
    for layer, heads in enumerate(found.maps, start=1):
        figures.append(f"<h2>layer {layer}</h2>")
        figures += [_figure(image, one, f"head {number}") for number, one in enumerate(heads, start=1)]
    height, width = found.pixels.shape[:2]
    return _PAGE.format(
        title=html.escape(name),
        ratio=f"{width} / {height}",
        guess=html.escape(f"{found.guess}, {found.probability:.1%}"),
        figures="\n".join(figures),
    )


def _figure(image: str, weights: Tensor | None, caption: str) -> str:
    over = "" if weights is None else f'<img alt="" src="{_data(_heat(weights))}">'
    return (
        f'<figure><div class="map"><img alt="" src="{image}">{over}</div>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _picture(pixels: Tensor) -> Tensor:
    return pixels if pixels.size(2) == 3 else pixels[..., :1].expand(-1, -1, 3)


def _heat(weights: Tensor) -> Tensor:
    """From the least to the most: (rows, columns) → (rows, columns, 3) bytes."""
    import matplotlib as mpl

    span = weights.max() - weights.min()
    share = (weights - weights.min()) / (span if span > 0 else 1)
    return torch.from_numpy(mpl.colormaps["inferno"](share.numpy(), bytes=True)[..., :3].copy())


def _data(pixels: Tensor) -> str:
    """A PNG inside the page."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, pixels.contiguous().numpy(), format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
