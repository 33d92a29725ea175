import builtins
import json
import math

import pytest

from transduce.errors import DependencyError, TrainingError
from transduce.runs.reporting import throughput
from transduce.runs.reporting.tensorboard import TensorBoard
from transduce.runs.task import IMAGE_CLASSES, TRANSLATION
from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation


def training_metrics(nll):
    return {"loss": 2 * nll, "nll": nll, "norm": 0.5, "learning_rate": 0.001}


def read(folder):
    """{name: {step: value}}, as TensorBoard would show it."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    scalars = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    for name, points in scalars.items():
        steps = [point.step for point in points]
        assert steps == sorted(set(steps)), f"{name} has steps twice or out of order"
    return {name: {point.step: point.value for point in points} for name, points in scalars.items()}


def log(folder, *lines):
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def board(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path, 0, TRANSLATION.words)
    yield board
    board.close()


def test_metrics_are_written_before_it_is_closed(tmp_path, board):
    """A killed process closes nothing."""
    board.on_message("a message")
    board.on_log(Progress(step=50), training_metrics(2.0))
    board.on_log(Progress(step=100), training_metrics(1.0))
    board.on_log(Progress(step=100), {"valid_loss": 1.5, "valid_accuracy": 0.75, "shuffled_source_loss": 3.0})
    board.on_validation(Progress(step=100), Validation(1.5, 0.75, 3.0))
    rounded = {
        name: {step: pytest.approx(value, rel=1e-6) for step, value in values.items()}
        for name, values in read(tmp_path).items()
    }
    assert rounded == {
        "train/loss": {50: 4.0, 100: 2.0},
        "train/nll": {50: 2.0, 100: 1.0},
        "train/perplexity": {50: math.exp(2), 100: math.exp(1)},
        "train/norm": {50: 0.5, 100: 0.5},
        "train/learning_rate": {50: 0.001, 100: 0.001},
        "valid/nll": {100: 1.5},
        "valid/perplexity": {100: math.exp(1.5)},
        "valid/accuracy": {100: 0.75},
    }


def test_a_resumed_run_shows_no_point_twice(tmp_path):
    pytest.importorskip("tensorboard")
    killed = TensorBoard(tmp_path, 0, TRANSLATION.words)
    for step in (50, 100, 150, 200):
        killed.on_log(Progress(step=step), training_metrics(float(step)))
        if step <= 100:  # later lines are cut off when a run is resumed
            log(tmp_path, {"step": step, **training_metrics(float(step))})
    killed.close()
    resumed = TensorBoard(tmp_path, 100, TRANSLATION.words)  # from the checkpoint of step 100
    resumed.on_log(Progress(step=150), training_metrics(1.0))
    resumed.close()
    assert read(tmp_path)["train/nll"] == {50: 50.0, 100: 100.0, 150: 1.0}


def test_what_was_trained_without_tensorboard_is_filled_in(tmp_path):
    """A run starts without it, is resumed with it, then without it, and with it again."""
    pytest.importorskip("tensorboard")
    log(tmp_path, {"step": 50, "epoch": 0, **training_metrics(3.0)})
    log(tmp_path, {"step": 50, "epoch": 0, "valid_loss": 2.5, "valid_accuracy": 0.5})
    first = TensorBoard(tmp_path, 50, TRANSLATION.words)
    first.on_log(Progress(step=100), training_metrics(2.0))
    first.close()
    log(tmp_path, {"step": 100, "epoch": 0, **training_metrics(2.0)})
    log(tmp_path, {"step": 150, "epoch": 0, "loss": None, "nll": None, "norm": None, "learning_rate": 0.1})
    log(tmp_path, {"step": 250, "epoch": 0, **training_metrics(9.0)})  # after the checkpoint
    second = TensorBoard(tmp_path, 200, TRANSLATION.words)
    second.on_log(Progress(step=250), training_metrics(1.0))
    second.close()
    shown = read(tmp_path)
    assert shown["valid/nll"] == {50: 2.5}
    nll = shown["train/nll"]
    assert math.isnan(nll.pop(150))
    assert nll == {50: 3.0, 100: 2.0, 250: 1.0}


def test_speed_leaves_validations_out(tmp_path, board, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(throughput.time, "monotonic", lambda: now[0])

    def at(seconds, tokens):
        now[0] = seconds
        return Progress(step=int(seconds), tokens=tokens)

    for progress in (at(10, 1000), at(20, 3000)):
        now[0] = progress.step
        board.on_step(progress, training_metrics(1.0))
        board.on_log(progress, training_metrics(1.0))
    board.on_validation(at(100, 3000), Validation(1.0, 0.5, 2.0))
    board.on_step(at(110, 6000), training_metrics(1.0))
    board.on_log(at(110, 6000), training_metrics(1.0))
    assert read(tmp_path)["train/tokens_per_second"] == {20: 200.0, 110: 300.0}


def test_images_have_no_perplexity(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path, 0, IMAGE_CLASSES.words)
    board.on_log(Progress(step=50), training_metrics(2.0))
    board.close()
    assert read(tmp_path).keys() == {"train/loss", "train/nll", "train/norm", "train/learning_rate"}


def test_a_loss_that_is_not_finite(tmp_path, board):
    board.on_log(Progress(step=50), training_metrics(math.nan))
    board.on_log(Progress(step=100), training_metrics(math.inf))
    shown = read(tmp_path)
    assert math.isnan(shown["train/loss"][50])
    assert shown["train/loss"][100] == math.inf


def test_a_folder_that_cannot_be_written(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("")
    with pytest.raises(TrainingError, match=r"cannot write .*tensorboard"):
        TensorBoard(tmp_path, 0, TRANSLATION.words)


def test_without_tensorboard(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if "tensorboard" in name:
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyError, match="tensorboard"):
        TensorBoard(tmp_path, 0, TRANSLATION.words)
    assert list(tmp_path.iterdir()) == []
