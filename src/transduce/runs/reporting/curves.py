"""The curves of a run: negative log-likelihood, accuracy, learning rate and gradient norm."""

import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from transduce.errors import require_matplotlib
from transduce.runs.reporting.record import SCORES, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RAW: dict[str, Any] = {"color": "tab:blue", "alpha": 0.3, "linewidth": 0.8}
_TRAIN: dict[str, Any] = {"color": "tab:blue", "linewidth": 1.6}
_VALID: dict[str, Any] = {"color": "tab:orange", "linewidth": 1.6, "marker": "o", "markersize": 3.5}
_BEST: dict[str, Any] = {"color": "tab:red", "marker": "*", "markersize": 13, "linestyle": "none"}
_MARKED_POINTS = 30  # a curve of fewer points marks each of them
_LOG_SCALE_RATIO = 20  # the maximum over the minimum from which the scale is logarithmic
_HIGHEST_NLL = 20  # above, the perplexity is too large for an axis of its own


def draw_curves(record: RunRecord) -> bytes:
    """Return a PNG of four panels."""
    require_matplotlib("curves")
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    png = io.BytesIO()
    # The user's matplotlibrc is ignored, so that pictures look the same everywhere.
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure(figsize=(12, 7.5), layout=ConstrainedLayoutEngine(wspace=0.06), dpi=120)
        panels = figure.subplots(2, 2)
        state = "finished" if record.finished else "not finished"
        figure.suptitle(f"{record.name}: step {record.step:,} of {record.config.training.steps:,} ({state})")
        for axes, draw in zip(
            panels.flat, (_draw_nll, _draw_accuracy, _draw_learning_rate, _draw_norm), strict=True
        ):
            axes.grid(alpha=0.3)
            axes.set_xlim(0, max(1, record.step) * 1.02)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_xlabel("step")
            draw(axes, record)
        figure.savefig(png, format="png")
    return png.getvalue()


def running_median(values: Sequence[float]) -> list[float]:
    """Return the median of each value and its neighbours, 1% of all on either side; NaN stays NaN."""
    if not values:
        return []
    radius, medians = len(values) // 100, np.array(values, dtype=float)
    windows = sliding_window_view(np.pad(medians, radius, constant_values=np.nan), 2 * radius + 1)
    finite = np.isfinite(medians)
    medians[finite] = np.nanmedian(windows[finite], axis=1)
    return [float(median) for median in medians]


def perplexity_ticks(low: float, high: float) -> list[float]:
    """Return about three to eight round perplexities whose logarithms lie between ``low`` and ``high``."""
    from matplotlib.ticker import MaxNLocator

    def in_range(candidates: Iterable[float]) -> list[float]:
        return [value for value in candidates if value >= 1 and low <= math.log(value) <= high]

    decades = [10.0**power for power in range(math.ceil(max(high, 0) / math.log(10)) + 1)]
    for factors in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 2, 5), (1,)):
        ticks = in_range(sorted({factor * decade for decade in decades for factor in factors}))
        if len(ticks) <= 8:
            break
    return ticks if len(ticks) >= 3 else in_range(MaxNLocator(5).tick_values(math.exp(low), math.exp(high)))


def _draw_nll(axes: "Axes", record: RunRecord) -> None:
    words, dropout = record.task.words, record.config.model.dropout
    _draw_curve(axes, *record.series("nll"), f"training (dropout {dropout:g})" if dropout else "training")
    axes.plot(
        *record.series("valid_loss"), **_VALID, label="validation (no dropout)" if dropout else "validation"
    )
    if best := record.best:
        perplexity = f", perplexity {best.perplexity:.2f}" if words.perplexity else ""
        axes.plot(best.step, best.nll, **_BEST, label=f"best model: {best.nll:.4f}{perplexity}")
    axes.set(title="Negative log-likelihood (NLL)", ylabel=f"nats per {words.unit}")
    axes.legend()
    low, high = axes.get_ylim()
    if words.perplexity and high < _HIGHEST_NLL:
        ticks = perplexity_ticks(low, high)
        right = axes.twinx()
        right.set(ylabel="perplexity", ylim=(low, high))
        right.set_yticks([math.log(tick) for tick in ticks], [f"{tick:,.10g}" for tick in ticks])


def _draw_accuracy(axes: "Axes", record: RunRecord) -> None:
    axes.plot(*record.series("valid_accuracy"), **_VALID, label="validation")
    if (best := record.best) and math.isfinite(best.accuracy):
        axes.plot(best.step, best.accuracy, **_BEST, label=f"best model: {best.accuracy:.1%}")
    axes.set(title="Accuracy", ylabel=f"{record.task.words.unit}s predicted correctly", ylim=(0, 1.03))
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(loc="lower right")
    series = {label: record.series(f"valid_{name}") for name, label in SCORES.items()}
    if any(steps for steps, _ in series.values()):
        right = axes.twinx()
        for (label, (steps, scores)), style in zip(series.items(), ("-", "--"), strict=True):
            right.plot(steps, scores, style, color="tab:green", marker=".", label=label)
        right.set(ylabel=" and ".join(SCORES.values()), ylim=(0, 103))
        right.legend(loc="upper left")


def _draw_learning_rate(axes: "Axes", record: RunRecord) -> None:
    steps, rates = record.series("learning_rate")
    axes.plot(steps, rates, **_TRAIN, marker="o" if len(steps) < _MARKED_POINTS else "", markersize=3)
    axes.set(title="Learning rate", ylabel="learning rate")
    axes.ticklabel_format(axis="y", scilimits=(-2, 2))
    axes.set_ylim(0)
    _note_if_empty(axes, steps)


def _draw_norm(axes: "Axes", record: RunRecord) -> None:
    steps, norms = record.series("norm")
    _draw_curve(axes, steps, norms, "before clipping")
    if clip := record.config.training.clip:
        axes.axhline(clip, color="gray", linestyle=":", label=f"clipped above {clip:g}")
    axes.set(title="Gradient norm", ylabel="norm")
    finite = [norm for norm in norms if not math.isnan(norm)]
    if finite and 0 < min(finite) < max(finite) / _LOG_SCALE_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    else:
        axes.set_ylim(0)
    axes.legend()
    _note_if_empty(axes, steps)


def _draw_curve(axes: "Axes", steps: list[int], values: list[float], label: str) -> None:
    """Draw the values in a light colour and their running median over them."""
    few = len(steps) < _MARKED_POINTS
    if not few:
        axes.plot(steps, values, **_RAW)
    axes.plot(steps, running_median(values), **_TRAIN, marker="o" if few else "", markersize=3, label=label)


def _note_if_empty(axes: "Axes", steps: list[int]) -> None:
    if not steps:
        axes.text(0.5, 0.5, "nothing logged yet", transform=axes.transAxes, ha="center", color="gray")
