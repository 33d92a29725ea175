"""From an inspection to one HTML file that needs nothing from elsewhere."""

import base64
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from transduce.inspection.capture import Inspection

MANY = 300_000  # weights: beyond that, a byte each has to do, or the file becomes too large
SCRIPTS = ("weights", "colours", "keys", "tokens", "attention", "alignment", "beam", "main")
_FATES = {"kept": 0, "ended": 1, "pruned": 2}


def render(inspection: "Inspection") -> str:
    """The page."""
    page = files("transduce.inspection").joinpath("page")

    def read(name: str) -> str:
        return page.joinpath(name).read_text(encoding="utf-8")

    parts = {
        "style": read("style.css"),
        "script": "\n".join(read(f"{name}.js") for name in SCRIPTS),
        "data": embed(data_of(inspection)),
    }
    # In one pass: no part is searched for another's place.
    return re.sub(r"/\* (style|script|data) \*/", lambda mark: parts[mark[1]], read("page.html"))


def embed(data: Any) -> str:
    """JSON that can stand inside a script element: ASCII, and no tag can begin in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def data_of(inspection: "Inspection") -> dict[str, Any]:
    """What the page shows, as JSON can hold it."""
    maps = {
        "encoder": inspection.encoder,
        "decoder": inspection.decoder,
        "encoder_decoder": inspection.encoder_decoder,
    }
    bits = 16 if sum(weights.numel() for weights in maps.values()) <= MANY else 8
    names = {token: place for place, token in enumerate(inspection.token_names)}
    return {
        "source": inspection.source,
        "target": inspection.target,
        "targetWasGiven": inspection.target_was_given,
        "sourceTokens": inspection.source_tokens,
        "readTokens": inspection.read_tokens,
        "saidTokens": inspection.said_tokens,
        "logProbabilities": [_rounded(value) for value in inspection.log_probabilities],
        "bits": bits,
        "attention": {kind: pack(weights, bits) for kind, weights in maps.items()},
        "candidates": [
            {
                "text": one.text,
                "score": _rounded(one.score),
                "logProbability": _rounded(sum(one.log_probabilities)),
                "length": len(one.log_probabilities),
                "ended": len(one.log_probabilities) > len(one.tokens),
            }
            for one in inspection.candidates
        ],
        "hasWords": inspection.has_words,
        "names": list(inspection.token_names.values()),
        # A branch: parent, name, log-probability, score, fate
        "trace": [
            [
                [one.parent, names[one.token], _rounded(one.log_probability), _rounded(one.score), _FATES[one.fate]]
                for one in step
            ]
            for step in inspection.trace
        ],
        "winner": inspection.winner,
    }


def pack(weights: Tensor, bits: int) -> dict[str, Any]:
    """Weights between 0 and 1 as whole numbers of so many bits, little end first: exact to half a step."""
    most = 2**bits - 1
    whole = np.rint(weights.double().numpy() * most).astype(f"<u{bits // 8}")
    return {"shape": list(weights.shape), "data": base64.b64encode(whole.tobytes()).decode("ascii")}


def _rounded(value: float) -> float | None:
    """To 4 digits; JSON knows no infinity."""
    return round(value, 4) if np.isfinite(value) else None
