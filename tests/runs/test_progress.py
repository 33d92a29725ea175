import io
import math

import pytest
from rich.console import Console

from transduce import terminal
from transduce.runs.reporting import progress as progress_module
from transduce.runs.reporting import throughput
from transduce.runs.reporting.progress import CallbackGroup, ProgressDisplay, format_perplexity
from transduce.runs.reporting.throughput import Throughput
from transduce.runs.task import IMAGE_CLASSES
from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation

METRICS = {"loss": 9.0, "nll": 2.0, "norm": 1.0, "learning_rate": 0.1}


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [0.0]
    for module in (terminal, progress_module, throughput):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_shows_nll_speed_and_time_left(clock):
    written = io.StringIO()
    with ProgressDisplay(Console(file=written, force_terminal=True, width=120), steps=6) as display:
        for step in range(1, 4):
            display.on_step(Progress(step=step, tokens=10 * step), METRICS)
            clock[0] += 1
    shown = written.getvalue()
    for text in (
        "step 3/6",
        "NLL 2.000",
        "perplexity 7.39",
        "learning rate 1.0e-01",
        "10 tokens/s",
        " left",
    ):
        assert text in shown
    assert "9.000" not in shown  # the smoothed loss


def test_elsewhere_there_is_a_line_per_log(clock):
    written = io.StringIO()
    with ProgressDisplay(Console(file=written), steps=200) as display:
        for step in (1, 50, 100):
            display.on_step(Progress(step=step, tokens=10 * step), METRICS)
            clock[0] += 1
            if step > 1:
                display.on_log(Progress(step=step), METRICS)
        display.on_log(Progress(step=100), {"valid_loss": 3.0, "valid_accuracy": 0.5})
        display.on_validation(Progress(step=100, best_step=100), Validation(1.0, 0.5, 2.0, {"bleu": 12.34}))
    first, second, validation, summary = written.getvalue().splitlines()
    assert first.startswith("step 50/200  NLL 2.000  ")
    assert second.endswith("  500 tokens/s  1 s left")
    for fact in ("step 100:", "NLL 1.0000", "perplexity 2.72", "50.0%", "BLEU 12.3", "best"):
        assert fact in validation
    assert "3 steps in 3 s" in summary
    assert "495 tokens per second" in summary


@pytest.mark.parametrize(
    ("nll", "expected"),
    [
        (0.0004, "1.00"),
        (2.0, "7.39"),
        (8.0, "2,981"),
        (30.0, "1.1e+13"),
        (math.inf, "2.7e+43"),
        (math.nan, "nan"),
    ],
)
def test_perplexities_are_short(nll, expected):
    assert format_perplexity(nll) == expected


def test_a_time_limit_bounds_the_time_left(clock):
    written = io.StringIO()
    with ProgressDisplay(Console(file=written), steps=10_000, minutes=2) as display:
        for step in (1, 50):
            display.on_step(Progress(step=step, seconds=30.0), METRICS)  # 30 seconds before it was resumed
            display.on_log(Progress(step=step), METRICS)
            clock[0] += 10
    assert written.getvalue().splitlines()[1].endswith("  1 min 20 s left")


def test_images_have_no_perplexity():
    written = io.StringIO()
    with ProgressDisplay(Console(file=written), 200, IMAGE_CLASSES.words) as display:
        display.on_log(Progress(step=50), METRICS)
        display.on_validation(Progress(step=50), Validation(1.0, 0.5, 2.0))
    assert "NLL" in written.getvalue()
    assert "perplexity" not in written.getvalue()
    assert "best" not in written.getvalue()


def test_there_is_no_summary_after_an_error():
    written = io.StringIO()
    display = ProgressDisplay(Console(file=written), 200)
    with display:
        pass
    display.on_step(Progress(step=1), METRICS)
    error = ValueError("broken")
    display.__exit__(ValueError, error, None)
    assert written.getvalue() == ""


def test_throughput_leaves_validations_out(clock):
    speed = Throughput()
    assert speed.measure(1000) is None
    clock[0] += 0.1
    assert speed.measure(1001) is None  # too short to tell
    clock[0] += 9.9
    assert speed.measure(3000) == 200
    clock[0] += 80  # a validation
    speed.start(3000)
    clock[0] += 10
    assert speed.measure(6000) == 300
    assert speed.average == 250


class Recorder:
    def __init__(self):
        self.calls = []

    def on_message(self, message):
        self.calls.append(("on_message", message))

    def on_step(self, progress, metrics):
        self.calls.append(("on_step", progress, metrics))

    def on_log(self, progress, metrics):
        self.calls.append(("on_log", progress, metrics))

    def on_validation(self, progress, validation):
        self.calls.append(("on_validation", progress, validation))


def test_a_group_calls_each_callback_in_turn():
    first, second = Recorder(), Recorder()
    group = CallbackGroup(first, second)
    validation = Validation(1.0, 0.5, 2.0)
    group.on_message("hello")
    group.on_step(Progress(step=1), METRICS)
    group.on_log(Progress(step=1), METRICS)
    group.on_validation(Progress(step=1), validation)
    assert first.calls == second.calls
    assert [call[0] for call in first.calls] == ["on_message", "on_step", "on_log", "on_validation"]
    assert first.calls[-1] == ("on_validation", Progress(step=1), validation)
