"""Self-contained HTML pages, built from templates."""

import base64
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from torch import Tensor

from transduce.inspection.color_scale import color_scale

SCRIPTS = (
    *("dom", "state", "theme", "weights", "colors", "keys", "tokens"),
    *("attention", "heat_map", "strip", "alignment", "beam", "main"),
)


def render(data: dict[str, Any]) -> str:
    """Return the page that shows this data."""
    parts = {
        "style": read("base.css") + read("style.css"),
        "script": "\n".join(read(f"{name}.js") for name in SCRIPTS),
        "data": embed(data | {"scales": {"light": color_scale(), "dark": color_scale(dark=True)}}),
    }
    return fill("page.html", parts)


def read(name: str) -> str:
    """Return the text of a file in the folder ``page``."""
    return files("transduce.inspection").joinpath("page", name).read_text(encoding="utf-8")


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with each mark ``/* name */`` replaced by the part of that name."""
    # One pass, so that marks inside the parts are not replaced.
    return re.sub(rf"/\* ({'|'.join(parts)}) \*/", lambda mark: parts[mark[1]], read(template))


def embed(data: Any) -> str:
    """Return JSON that is safe inside a script element: ASCII, and without ``<``."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def pack(weights: Tensor, bits: int) -> dict[str, Any]:
    """Encode weights between 0 and 1 as little-endian integers of 8 or 16 bits."""
    maximum = 2**bits - 1
    integers = np.rint(weights.double().numpy() * maximum).astype(f"<u{bits // 8}")
    return {"shape": list(weights.shape), "data": base64.b64encode(integers.tobytes()).decode("ascii")}


def rounded(value: float) -> float | None:
    """Round to 4 digits; return ``None`` for infinity, which JSON does not have."""
    return round(value, 4) if np.isfinite(value) else None
