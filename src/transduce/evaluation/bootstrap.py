"""Bootstrap resampling of a test set's lines: confidence intervals and paired tests (Koehn, 2004).

Resamples and test are those of sacrebleu, except that ties count, so that all metrics of a table can be
compared.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SEED = 12345  # sacrebleu's
_LINES_AT_ONCE = 2_000_000  # resampled lines held in memory
_ROUNDING = 1e-9  # percent

# (lines, 2): a numerator and a denominator for each line, such as errors and tokens.
LineCounts = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Rates = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """The range that holds 95% of the resampled scores."""

    low: float
    high: float


def rate(counts: LineCounts) -> float:
    """Return the corpus' rate in percent: the sum of the numerators over the sum of the denominators."""
    numerator, denominator = counts.sum(axis=0)
    return float(100 * numerator / denominator)


def resampled_rates(counts: LineCounts, resamples: int) -> Rates:
    """Return the rate of each resample in percent, (resamples,).

    Test sets of the same size get the same resamples.
    """
    generator = np.random.default_rng(SEED)
    lines = len(counts)
    rows = max(1, _LINES_AT_ONCE // lines)
    rates = []
    for begin in range(0, resamples, rows):
        sampled = generator.choice(lines, size=(min(rows, resamples - begin), lines), replace=True)
        numerator, denominator = (column[sampled].sum(axis=1) for column in counts.T)
        rates.append(100 * numerator / denominator)
    return np.concatenate(rates)


def interval(rates: Rates) -> Interval:
    """Return the range of the rates without the lowest and the highest 2.5%."""
    ordered, cut = np.sort(rates), len(rates) // 40
    return Interval(float(ordered[cut]), float(ordered[len(rates) - cut - 1]))


def paired_p_value(first: LineCounts, second: LineCounts, resamples: int) -> float:
    """Return the p-value of the difference between two systems' rates, from the same resamples of both.

    The spread of the resampled differences around their mean estimates the effect of chance. Sacrebleu's rule
    differs in two points: its mean may exceed the true difference, and it does not count ties.
    """
    difference = abs(rate(first) - rate(second))
    resampled = np.abs(resampled_rates(first, resamples) - resampled_rates(second, resamples))
    # Rates change in steps of whole lines, so many resamples tie with the difference: ties count, wherever
    # the resampled mean happens to fall.
    mean = min(float(resampled.mean()), difference)
    by_chance = int((resampled - mean > difference - _ROUNDING).sum())
    # Without this exception, identical systems would get the smallest p-value of all.
    return (by_chance + 1) / (resamples + 1) if difference else 1.0
