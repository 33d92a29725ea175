"""Tell which positional encoding a stored table is."""

from itertools import product
from typing import Any

import torch
from torch import Tensor

from transduce.nn.positional import sinusoids

_FIRST = (0, 1, 2)
_TOLERANCE = 1e-3  # tables were computed in float32, or stored in float16, by all kinds of code
_ROWS = 64  # enough to tell them apart; further rows differ more by rounding


def position_settings(
    source: Tensor | None, target: Tensor | None, *, absent: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of a `TransformerConfig` for stored tables, (positions, d_model).

    A table that is no sinusoid is learned. ``absent`` are the settings of a model without tables.
    """
    if source is None or target is None:
        return {"positions": "sinusoidal", **(absent or {})}
    found = [settings for settings in _sinusoids() if all(_is(table, settings) for table in (source, target))]
    if found:
        return {"positions": "sinusoidal", **found[0]}
    if not source.any() and not target.any():
        return {"positions": "none"}
    return {"positions": "learned", "max_length": len(source)}


def _sinusoids() -> list[dict[str, Any]]:
    return [
        {"sine_layout": layout, "sine_spacing": spacing, "first_position": first}
        for layout, spacing, first in product(("interleaved", "halves"), ("paper", "endpoint"), _FIRST)
    ]


def _is(table: Tensor, settings: dict[str, Any]) -> bool:
    """Return whether a table holds these sinusoids."""
    if table.size(1) < 4 or table.size(1) % 2:
        return False
    rows = table[:_ROWS].float()
    expected = sinusoids(
        len(rows),
        table.size(1),
        start=settings["first_position"],
        layout=settings["sine_layout"],
        spacing=settings["sine_spacing"],
    )
    return torch.allclose(rows, expected, atol=_TOLERANCE, rtol=0)
