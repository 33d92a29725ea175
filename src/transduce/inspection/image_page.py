"""Attention over an image as a self-contained HTML page."""

import base64
import html
import io

from torch import Tensor

from transduce.inspection.color_scale import LEVELS, shared_top
from transduce.inspection.image_attention import ImageAttention
from transduce.inspection.render import embed, fill, pack, read

COLORS = "inferno"  # its hues stand out from photographs
SCRIPTS = ("dom", "state", "theme", "weights", "keys", "image")
_BITS = 16


def page(attention: ImageAttention, name: str) -> str:
    """Return a page with the image, its rollout and every head; a slider blends image and attention."""
    height, width = attention.pixels.shape[:2]
    parts = {
        "style": read("base.css") + read("image.css"),
        "script": "\n".join(read(f"{name}.js") for name in SCRIPTS),
        "data": embed(_data(attention)),
        "ratio": f"{width} / {height}",
        "image": _url(_rgb(attention.pixels)),
        "name": html.escape(name),
        "prediction": html.escape(f"{attention.label}, {attention.probability:.1%}"),
    }
    return fill("image.html", parts)


def _data(attention: ImageAttention) -> dict[str, object]:
    import matplotlib as mpl

    colors = mpl.colormaps[COLORS].resampled(LEVELS)(range(LEVELS), bytes=True)[:, :3]
    rollout = attention.rollout[None, None]
    return {
        "bits": _BITS,
        "attention": {"maps": pack(attention.maps, _BITS), "rollout": pack(rollout, _BITS)},
        "top": shared_top(attention.maps),
        "colors": colors.tolist(),
    }


def _rgb(pixels: Tensor) -> Tensor:
    return pixels if pixels.size(2) == 3 else pixels[..., :1].expand(-1, -1, 3)


def _url(pixels: Tensor) -> str:
    """Return a data URL of a PNG image."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, pixels.contiguous().numpy(), format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
