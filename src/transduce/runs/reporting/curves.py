"""The curves of a run: loss, perplexity, accuracy, learning rate and gradient norm."""

import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from transduce.errors import require_matplotlib
from transduce.runs.reporting.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RAW: dict[str, Any] = {"color": "tab:blue", "alpha": 0.3, "linewidth": 0.8}
_TRAIN: dict[str, Any] = {"color": "tab:blue", "linewidth": 1.6}
_VALID: dict[str, Any] = {"color": "tab:orange", "linewidth": 1.6, "marker": "o", "markersize": 3.5}
_BEST: dict[str, Any] = {"color": "tab:red", "marker": "*", "markersize": 13, "linestyle": "none"}
_FEW = 30  # so few points are each shown
_WIDE = 20  # from the least to the greatest: beyond, the scale is logarithmic


def draw_curves(record: Record) -> bytes:
    """A PNG of four panels."""
    require_matplotlib("curves")
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    png = io.BytesIO()
    # The same pictures for everyone, whatever their matplotlibrc.
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure(figsize=(12, 7.5), layout=ConstrainedLayoutEngine(wspace=0.06), dpi=120)
        panels = figure.subplots(2, 2)
        state = "finished" if record.finished else "not finished"
        figure.suptitle(f"Step {record.step:,} of {record.config.training.steps:,}, {state}")
        for axes, draw in zip(panels.flat, (_loss, _accuracy, _learning_rate, _norm), strict=True):
            axes.grid(alpha=0.3)
            axes.set_xlim(0, max(1, record.step) * 1.02)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_xlabel("step")
            draw(axes, record)
        figure.savefig(png, format="png")
    return png.getvalue()


def smooth(values: Sequence[float]) -> list[float]:
    """Each value's median with its neighbours, a hundredth of all on either side; a NaN stays one."""
    if not values:
        return []
    radius, found = len(values) // 100, np.array(values, dtype=float)
    windows = sliding_window_view(np.pad(found, radius, constant_values=np.nan), 2 * radius + 1)
    known = np.isfinite(found)
    found[known] = np.nanmedian(windows[known], axis=1)
    return [float(value) for value in found]


def perplexity_ticks(low: float, high: float) -> list[float]:
    """Round perplexities between two losses: about three to eight of them."""
    from matplotlib.ticker import MaxNLocator

    def between(candidates: Iterable[float]) -> list[float]:
        return [value for value in candidates if value >= 1 and low <= math.log(value) <= high]

    decades = [10.0**power for power in range(math.ceil(max(high, 0) / math.log(10)) + 1)]
    for factors in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 2, 5), (1,)):
        found = between(sorted({factor * decade for decade in decades for factor in factors}))
        if len(found) <= 8:
            break
    return found if len(found) >= 3 else between(MaxNLocator(5).tick_values(math.exp(low), math.exp(high)))


def _loss(axes: "Axes", record: Record) -> None:
    training = record.config.training
    parts = [f"label smoothing {training.label_smoothing:g}"] if training.label_smoothing else []
    parts += [f"R-Drop {training.r_drop:g}"] if training.r_drop else []
    label = f"training ({', '.join(parts)})" if parts else "training"
    _curve(axes, *record.series("loss"), label)
    axes.plot(*record.series("valid_loss"), **_VALID, label="validation")
    if best := record.best:
        known = f", perplexity {best.perplexity:.2f}" if record.words.perplexity else ""
        label = f"best: {best.loss:.4f}{known}"
        axes.plot(best.step, best.loss, **_BEST, label=label)
    axes.set(
        title="Loss", ylabel=f"loss, nats a{'n' if record.words.unit == 'image' else ''} {record.words.unit}"
    )
    axes.legend()
    low, high = axes.get_ylim()
    if record.words.perplexity and high < 20:  # beyond, perplexity has no number worth a tick
        ticks = perplexity_ticks(low, high)
        right = axes.twinx()
        right.set(ylabel="perplexity", ylim=(low, high))
        right.set_yticks([math.log(tick) for tick in ticks], [f"{tick:,.10g}" for tick in ticks])


def _accuracy(axes: "Axes", record: Record) -> None:
    axes.plot(*record.series("valid_accuracy"), **_VALID, label="validation")
    if (best := record.best) and math.isfinite(best.accuracy):
        axes.plot(best.step, best.accuracy, **_BEST, label=f"{best.accuracy:.1%} at the lowest loss")
    axes.set(title="Accuracy", ylabel=f"{record.words.unit}s predicted right", ylim=(0, 1.03))
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(loc="lower right")


def _learning_rate(axes: "Axes", record: Record) -> None:
    steps, rates = record.series("learning_rate")
    axes.plot(steps, rates, **_TRAIN, marker="o" if len(steps) < _FEW else "", markersize=3)
    axes.set(title="Learning rate", ylabel="learning rate")
    axes.ticklabel_format(axis="y", scilimits=(-2, 2))
    axes.set_ylim(0)
    _admit_if_empty(axes, steps)


def _norm(axes: "Axes", record: Record) -> None:
    steps, norms = record.series("norm")
    _curve(axes, steps, norms, "of a step, before clipping")
    if clip := record.config.training.clip:
        axes.axhline(clip, color="gray", linestyle=":", label=f"clipped above {clip:g}")
    axes.set(title="Gradient norm", ylabel="norm")
    known = [norm for norm in norms if not math.isnan(norm)]
    if known and 0 < min(known) < max(known) / _WIDE:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    else:
        axes.set_ylim(0)
    axes.legend()
    _admit_if_empty(axes, steps)


def _curve(axes: "Axes", steps: list[int], values: list[float], label: str) -> None:
    """What was measured, faint, and its smoothed course."""
    few = len(steps) < _FEW
    if not few:
        axes.plot(steps, values, **_RAW)
    axes.plot(steps, smooth(values), **_TRAIN, marker="o" if few else "", markersize=3, label=label)


def _admit_if_empty(axes: "Axes", steps: list[int]) -> None:
    if not steps:
        axes.text(0.5, 0.5, "nothing was logged yet", transform=axes.transAxes, ha="center", color="gray")
