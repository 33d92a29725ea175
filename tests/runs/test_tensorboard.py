import builtins
import math

import pytest

from transduce.errors import DependencyError, TrainingError
from transduce.runs.reporting import tensorboard
from transduce.runs.reporting.tensorboard import TensorBoard
from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation


def step(loss):
    return {"loss": loss, "nll": loss, "norm": 0.5, "learning_rate": 0.001}


def read(folder):
    """{tag: {step: value}}, as TensorBoard would show it."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    found = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    for tag, points in found.items():
        assert len({point.step for point in points}) == len(points), f"{tag} has a step twice"
    return {tag: {point.step: point.value for point in points} for tag, points in found.items()}


@pytest.fixture
def board(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path)
    yield board
    board.close()


def test_figures_arrive_before_it_is_closed(tmp_path, board):
    """A killed process closes nothing."""
    board.on_message("words")
    board.on_log(Progress(step=50), step(2.0))
    board.on_log(Progress(step=100), step(1.0))
    board.on_log(Progress(step=100), {"valid_loss": 1.5, "valid_accuracy": 0.5})
    board.on_validation(Progress(step=100), Validation(1.5, 0.75, 3.0))
    found = read(tmp_path)
    assert found.pop("train/tokens_per_second").keys() == {100}
    rounded = {
        tag: {s: pytest.approx(v, rel=1e-6) for s, v in values.items()} for tag, values in found.items()
    }
    assert rounded == {
        "train/loss": {50: 2.0, 100: 1.0},
        "train/nll": {50: 2.0, 100: 1.0},
        "train/perplexity": {50: math.exp(2), 100: math.exp(1)},
        "train/norm": {50: 0.5, 100: 0.5},
        "train/learning_rate": {50: 0.001, 100: 0.001},
        "valid/loss": {100: 1.5},
        "valid/perplexity": {100: math.exp(1.5)},
        "valid/accuracy": {100: 0.75},
    }


def test_a_resumed_run_shows_no_point_twice(tmp_path):
    pytest.importorskip("tensorboard")
    killed = TensorBoard(tmp_path)
    for at in (50, 100, 150, 200):
        killed.on_log(Progress(step=at), step(float(at)))
    killed.close()
    resumed = TensorBoard(tmp_path, step=100)  # from the checkpoint of step 100
    resumed.on_log(Progress(step=150), step(1.0))
    resumed.close()
    assert read(tmp_path)["train/loss"] == {50: 50.0, 100: 100.0, 150: 1.0}


def test_speed_leaves_validations_out(tmp_path, board, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(tensorboard.time, "monotonic", lambda: now[0])

    def at(seconds, tokens):
        now[0] = seconds
        return Progress(step=int(seconds), tokens=tokens)

    board.on_log(at(10, 1000), step(1.0))
    board.on_log(at(20, 3000), step(1.0))
    board.on_validation(at(100, 3000), Validation(1.0, 0.5, 2.0))
    board.on_log(at(110, 6000), step(1.0))
    assert read(tmp_path)["train/tokens_per_second"] == {20: 200.0, 110: 300.0}


def test_a_loss_beyond_all_bounds(tmp_path, board):
    board.on_log(Progress(step=50), step(math.nan))
    board.on_log(Progress(step=100), step(math.inf))
    found = read(tmp_path)
    assert math.isnan(found["train/loss"][50])
    assert found["train/loss"][100] == math.inf


def test_a_place_that_cannot_be_written(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("")
    with pytest.raises(
        TrainingError, match=r"cannot write .*tensorboard: .*; check the space and your rights"
    ):
        TensorBoard(tmp_path)


def test_without_tensorboard(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if "tensorboard" in name:
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyError, match=r"pip install 'transduce\[track\]'"):
        TensorBoard(tmp_path)
    assert list(tmp_path.iterdir()) == []
