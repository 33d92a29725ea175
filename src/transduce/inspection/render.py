"""One HTML file that needs nothing from elsewhere."""

import base64
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from torch import Tensor

SCRIPTS = ("weights", "colours", "keys", "tokens", "attention", "alignment", "beam", "main")


def render(data: dict[str, Any]) -> str:
    """The page that shows this data."""
    parts = {
        "style": read("base.css") + read("style.css"),
        "script": "\n".join(read(f"{name}.js") for name in SCRIPTS),
        "data": embed(data),
    }
    return fill("page.html", parts)


def read(name: str) -> str:
    """A file that pages are made of."""
    return files("transduce.inspection").joinpath("page", name).read_text(encoding="utf-8")


def fill(template: str, parts: Mapping[str, str]) -> str:
    """A page with each part in the place that is marked with its name."""
    # In one pass: no part is searched for another's place.
    return re.sub(rf"/\* ({'|'.join(parts)}) \*/", lambda mark: parts[mark[1]], read(template))


def embed(data: Any) -> str:
    """JSON that can stand inside a script element: ASCII, and no tag can begin in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def pack(weights: Tensor, bits: int) -> dict[str, Any]:
    """Weights between 0 and 1 as whole numbers of so many bits, little end first: exact to half a step."""
    most = 2**bits - 1
    whole = np.rint(weights.double().numpy() * most).astype(f"<u{bits // 8}")
    return {"shape": list(weights.shape), "data": base64.b64encode(whole.tobytes()).decode("ascii")}


def rounded(value: float) -> float | None:
    """To 4 digits; JSON knows no infinity."""
    return round(value, 4) if np.isfinite(value) else None
