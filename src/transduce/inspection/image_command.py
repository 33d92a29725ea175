"""``transduce vision inspect``: attention over an image, as a PNG image or an HTML page."""

from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from transduce import artifact
from transduce.data.image_files import read_for_model
from transduce.engine.precision import for_inference
from transduce.errors import require_matplotlib
from transduce.inspection.image_attention import inspect_image
from transduce.inspection.image_heat_map import draw
from transduce.inspection.image_page import page
from transduce.inspection.output_files import check_output, require_different, write

DEFAULT_IMAGE = Path("attention.png")


def inspect_file(
    model: Path, image: Path, png: Path | None = None, out: Path | None = None, *, device: str = "auto"
) -> Iterator[Path]:
    """Inspect an image file; yield each output file as soon as it is written."""
    require_matplotlib("attention maps")
    png = png or (None if out else DEFAULT_IMAGE)
    require_different(out, png)
    check_output(out, "HTML page", image)
    check_output(png, "PNG image", image)
    vit = for_inference(artifact.load_as(model, "vit"), "float32", device)
    pixels = torch.from_numpy(read_for_model([image], vit.config.size, vit.channels)[0])
    attention = inspect_image(vit, pixels)
    if out:
        write(out, page(attention, image.name))
        yield out
    if png:
        write(png, draw(attention, warn=Console(stderr=True).print))
        yield png
