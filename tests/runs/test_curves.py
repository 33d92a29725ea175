import math
import warnings

import pytest
from matplotlib.figure import Figure

from recorded_runs import METRICS, make_run
from transduce.runs.reporting.curves import draw_curves, perplexity_ticks, running_median
from transduce.runs.reporting.record import read_record


def figure_of(record, monkeypatch):
    """The figure of the curves, before it becomes a picture."""
    drawn = []
    real = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), real(self, *a, **k))[1])
    draw_curves(record)
    return drawn[0]


def test_the_panels_show_what_was_measured(tmp_path, monkeypatch):
    record = read_record(make_run(tmp_path / "run", models=(), label_smoothing=0.1))
    figure = figure_of(record, monkeypatch)
    loss, accuracy, rate, norm, perplexity = figure.axes
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        "Negative log-likelihood (NLL)",
        "Accuracy",
        "Learning rate",
        "Gradient norm",
    ]
    assert all(axes.get_xlabel() == "step" and axes.get_ylabel() for axes in figure.axes[:4])
    curves = {line.get_label(): line.get_xydata().tolist() for line in loss.lines}
    assert curves["training"] == [[50, 3.5], [100, 1.5], [200, 0.5]]  # the NLL, not the smoothed loss
    assert curves["validation"] == [[100, 1.5], [200, 1.75]]
    assert curves["best model: 1.5000, perplexity 4.48"] == [[100, 1.5]]
    assert accuracy.lines[0].get_ydata().tolist() == [0.625, 0.75]
    assert rate.lines[0].get_ydata().tolist() == [0.001, 0.002, 0.001]
    assert norm.lines[0].get_ydata().tolist() == [3, 1, 0.5]
    assert perplexity.get_ylim() == loss.get_ylim()
    shown = dict(zip(perplexity.get_yticklabels(), perplexity.get_yticks(), strict=True))
    assert len(shown) >= 3
    for label, height in shown.items():
        assert math.exp(height) == pytest.approx(float(label.get_text()))


NAN = {"step": 100, "epoch": 0, "loss": math.nan, "nll": math.nan, "norm": math.inf, "learning_rate": 0.0}


@pytest.mark.parametrize(
    "metrics",
    [
        METRICS[2:3],
        METRICS[:1],
        [NAN],
        [NAN, {"step": 100, "epoch": 0, "valid_loss": math.nan, "valid_accuracy": math.nan}],
        [{"step": 50, "epoch": 0, "loss": 1e6, "nll": 1e6, "norm": 0.0, "learning_rate": 1e-9}],
        [{"step": 1, "epoch": 0, "valid_loss": 0.0, "valid_accuracy": 1.0}],
        [{"step": step, "epoch": 0, "loss": 3.0, "nll": 3.0, "norm": 1.0} for step in range(50, 50_000, 50)],
    ],
    ids=["validation", "step", "nan", "all nan", "huge", "perfect", "flat"],
)
def test_odd_metrics_draw_without_a_warning(tmp_path, metrics):
    record = read_record(make_run(tmp_path / "run", metrics=metrics, models=()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_curves(record).startswith(b"\x89PNG")


def test_a_running_median_hides_spikes():
    assert running_median([3.0, 1.0, 2.0]) == [3.0, 1.0, 2.0]  # too few to smooth
    values = [1.0] * 100 + [9.0] + [1.0] * 99
    assert running_median(values) == [1.0] * 200  # one spike is no trend
    values[50] = math.nan
    assert [index for index, value in enumerate(running_median(values)) if math.isnan(value)] == [50]
    assert running_median([]) == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.2, [1, 1.2, 1.5, 2, 2.5, 3]),
        (1.0, 9.5, [10, 100, 1000, 10000]),
        (0.5, 3.5, [2, 5, 10, 20]),
        (0.0, 20.0, [10.0**power for power in range(9)]),
    ],
)
def test_perplexities_are_round(low, high, expected):
    assert perplexity_ticks(low, high) == pytest.approx(expected)


def test_perplexities_in_a_narrow_range():
    ticks = perplexity_ticks(1.0, 1.01)
    assert len(ticks) >= 3
    assert all(1.0 <= math.log(tick) <= 1.01 for tick in ticks)


def test_validation_scores_are_drawn_beside_the_accuracy(tmp_path, monkeypatch):
    metrics = [*METRICS[:2], {**METRICS[2], "valid_bleu": 12.5, "valid_chrf": 40.0}]
    record = read_record(make_run(tmp_path / "run", metrics=metrics, models=()))
    (scores,) = [axes for axes in figure_of(record, monkeypatch).axes if "BLEU" in axes.get_ylabel()]
    assert {line.get_label(): line.get_ydata().tolist() for line in scores.lines} == {
        "BLEU": [12.5],
        "chrF": [40],
    }
