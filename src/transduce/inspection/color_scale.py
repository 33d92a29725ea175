"""The color scale of attention weights, the same in pages and images."""

import math

import torch
from torch import Tensor

LEVELS = 64
_HUE = 262  # degrees
_LIGHT, _DARK = (
    (0.975, 0.33),
    (0.24, 0.93),
)  # lightness of the weight 0, the color of the page, and of the top
TOPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # few values, so that maps with the same top are comparable
_ROWS_BELOW_TOP = 0.9


def color_scale(dark: bool = False) -> list[tuple[int, int, int]]:
    """Return `LEVELS` colors of one hue, with perceptually even steps of lightness (OKLCH)."""
    start, end = _DARK if dark else _LIGHT
    colors = []
    for level in range(LEVELS):
        share = level / (LEVELS - 1)
        chroma = 0.012 + 0.17 * math.sin(math.pi * min(0.92, 0.08 + 0.84 * share)) * math.sqrt(share)
        colors.append(_srgb(start + (end - start) * share, chroma))
    return colors


def scale_top(weights: Tensor) -> float:
    """Return where the scale of a map, (query, key), ends: few rows have a larger weight.

    With many tokens most weights are small: on a scale up to 1 they would all look like 0.
    """
    if not weights.numel():
        return 1.0
    peaks = weights.amax(dim=-1).sort().values
    peak = float(peaks[math.ceil(_ROWS_BELOW_TOP * len(peaks)) - 1])
    return next((top for top in TOPS if peak <= top), 1.0)


def shared_top(maps: Tensor) -> float:
    """Return where one scale for the maps of all heads, (layers, heads, rows, columns), ends.

    It is the median of their largest weights: on a scale up to the largest of all, one sharp head would
    darken the others.
    """
    return float(maps.flatten(2).amax(dim=-1).median())


def _srgb(lightness: float, chroma: float) -> tuple[int, int, int]:
    """Convert a color of this hue from OKLCH (Ottosson, 2020) to sRGB bytes."""
    angle = math.radians(_HUE)
    a, b = chroma * math.cos(angle), chroma * math.sin(angle)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
    linear = torch.tensor(
        (
            4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short,
        ),
        dtype=torch.float64,
    ).clamp(0, 1)
    encoded = torch.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = (255 * encoded).round().int().tolist()
    return red, green, blue
