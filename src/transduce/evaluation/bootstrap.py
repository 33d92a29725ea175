"""How certain a rate is: lines are drawn again and again, with replacement (Koehn, 2004).

The draws and, but for ties, the test are sacrebleu's, so that all metrics of a table are judged alike.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SEED = 12345  # sacrebleu's
_AT_ONCE = 2_000_000  # drawn lines
_ROUNDING = 1e-9  # percent

Counts = npt.NDArray[np.int64]  # (lines, 2): errors, or what was right, and out of how many
Rates = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Where 95 of 100 resampled scores lie."""

    low: float
    high: float


def rate(counts: Counts) -> float:
    """In percent."""
    part, whole = counts.sum(axis=0)
    return float(100 * part / whole)


def resampled_rates(counts: Counts, resamples: int) -> Rates:
    """The rate of each resample, (resamples,), in percent; the same draws for as many lines."""
    generator = np.random.default_rng(SEED)
    lines = len(counts)
    rows = max(1, _AT_ONCE // lines)
    rates = []
    for begin in range(0, resamples, rows):
        drawn = generator.choice(lines, size=(min(rows, resamples - begin), lines), replace=True)
        part, whole = (column[drawn].sum(axis=1) for column in counts.T)
        rates.append(100 * part / whole)
    return np.concatenate(rates)


def interval(rates: Rates) -> Interval:
    """Without the lowest and the highest fortieth."""
    ordered, cut = np.sort(rates), len(rates) // 40
    return Interval(float(ordered[cut]), float(ordered[len(rates) - cut - 1]))


def paired_p_value(one: Counts, other: Counts, resamples: int) -> float:
    """How often chance alone would bring a difference like the one between two systems' rates.

    Both systems get the same draws. How the differences spread around their mean says what chance does.
    Sacrebleu's mean may be above the true difference by chance, and leave out those that are just as large.
    """
    difference = abs(rate(one) - rate(other))
    drawn = np.abs(resampled_rates(one, resamples) - resampled_rates(other, resamples))
    # Whole lines make steps, and many a draw is just as far off: it counts, wherever luck puts the mean.
    middle = min(float(drawn.mean()), difference)
    by_chance = int((drawn - middle > difference - _ROUNDING).sum())
    # Systems that say the same would get the least p of all otherwise.
    return (by_chance + 1) / (resamples + 1) if difference else 1.0
