import itertools

import pytest
import torch

from transduce.inspection.color_scale import LEVELS, color_scale, scale_top, shared_top


@pytest.mark.parametrize("dark", [False, True])
def test_lightness_steps_are_even(dark):
    colors = torch.tensor(color_scale(dark)) / 255
    linear = torch.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    luminance = linear @ torch.tensor([0.2126, 0.7152, 0.0722])
    lightness = 116 * luminance ** (1 / 3) - 16
    steps = [float(b - a) * (1 if dark else -1) for a, b in itertools.pairwise(lightness)]
    assert len(colors) == LEVELS
    assert 0 < min(steps) < max(steps) < 3 * min(steps)


@pytest.mark.parametrize(
    ("peaks", "top"),
    [
        ([0.3] * 10, 0.5),
        ([0.3] * 9 + [1], 0.5),
        ([0.3] * 8 + [1] * 2, 1),
        ([0.004] * 10, 0.01),
        ([0.0], 0.01),
    ],
)
def test_a_scale_ends_where_nine_of_ten_rows_do(peaks, top):
    weights = torch.zeros(len(peaks), 7)
    weights[:, 3] = torch.tensor(peaks)
    assert scale_top(weights) == top


def test_the_shared_scale_ends_at_the_median_of_the_maxima():
    maps = torch.rand(1, 3, 4, 4) / 10
    maps[0, :, 1, 1] = torch.tensor([0.2, 0.3, 0.9])
    assert shared_top(maps) == pytest.approx(0.3)
