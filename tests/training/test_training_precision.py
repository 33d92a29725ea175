import subprocess
import sys

import pytest
import torch

from transduce.errors import ConfigError
from transduce.training import precision
from transduce.training.precision import autocast, default_precision, faster_precision

CPU = torch.device("cpu")


@pytest.fixture
def equal_speed(monkeypatch):
    """A machine on which everything takes one second."""
    monkeypatch.setattr(precision, "avoid_broken_amx", lambda: False)
    monkeypatch.setattr(precision, "require_bfloat16", lambda: None)
    monkeypatch.setattr(precision, "median_seconds", lambda run, device: (run(), 1.0)[1])


class Step:
    """A step that takes one second in float32, and does what it is told in bfloat16."""

    def __init__(self, error=None):
        self.error, self.precisions = error, []

    def __call__(self):
        rough = torch.is_autocast_enabled("cpu")
        self.precisions.append("bfloat16" if rough else "float32")
        if rough and self.error:
            raise self.error


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, "bfloat16"), (2.0, "float32")])
def test_the_faster_precision_is_chosen(equal_speed, monkeypatch, seconds, chosen):
    def measure(run, device):
        run()
        return seconds if torch.is_autocast_enabled("cpu") else 1.0

    monkeypatch.setattr(precision, "median_seconds", measure)
    step = Step()
    choice = faster_precision(step, CPU)
    assert choice.precision == chosen
    assert choice.reason.startswith(chosen)
    assert step.precisions == ["float32", "bfloat16"]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive"),
        RuntimeError("not implemented for 'BFloat16'"),
        ConfigError("this CPU has no bfloat16", "use float32"),
    ],
)
def test_a_step_that_fails_in_bfloat16_is_computed_in_float32(equal_speed, error):
    choice = faster_precision(Step(error), CPU)
    assert choice.precision == "float32"
    assert str(error).partition(";")[0] in choice.reason


def test_a_step_that_fails_in_float32_is_an_error(equal_speed):
    def fail():
        raise RuntimeError("wrong shapes")

    with pytest.raises(RuntimeError, match="wrong shapes"):
        faster_precision(fail, CPU)


def test_slow_products_are_enough_to_choose_float32(equal_speed, monkeypatch):
    seconds = iter([1.0, 3.0])
    monkeypatch.setattr(precision, "median_seconds", lambda run, device: next(seconds))
    step = Step()
    assert faster_precision(step, CPU).precision == "float32"
    assert not step.precisions


def test_a_cpu_that_reports_false_instructions_computes_in_float32(monkeypatch):
    monkeypatch.setattr(precision, "avoid_broken_amx", lambda: True)
    assert faster_precision(Step(), CPU).precision == "float32"


def test_a_sharded_model_on_cpus_computes_in_float32():
    assert default_precision(CPU).precision == "float32"


def test_a_missing_kernel_is_a_configuration_error_and_other_errors_pass(equal_speed):
    with pytest.raises(ConfigError, match="bfloat16") as raised, autocast("bfloat16", CPU):
        raise RuntimeError(
            "could not create a primitive descriptor for the LSTM forward propagation primitive"
        )
    assert "float32" in raised.value.remedy
    with pytest.raises(RuntimeError, match="can't allocate memory"), autocast("bfloat16", CPU):
        raise RuntimeError("can't allocate memory")


# oneDNN is told to use no more than AVX2, as on processors that have no more.
LSTM = """
import torch
from transduce.training.precision import autocast, faster_precision
from transduce.training import precision
from transduce.errors import ConfigError

layer, inputs, cpu = torch.nn.LSTM(8, 8), torch.randn(3, 2, 8), torch.device("cpu")
precision._product_seconds = lambda dtype, device: 1.0  # let the step decide
step = lambda: layer(inputs)[0].float().sum().backward()
print(faster_precision(step, cpu).precision)
try:
    with autocast("bfloat16", cpu):
        step()
    print("supported")
except ConfigError:
    print("refused")
"""


def test_an_lstm_in_bfloat16_without_avx512_ends_in_no_traceback():
    done = subprocess.run(
        [sys.executable, "-c", LSTM],
        capture_output=True,
        text=True,
        check=True,
        env={"ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.split() in (
        ["float32", "refused"],
        ["float32", "supported"],
        ["bfloat16", "supported"],
    )
