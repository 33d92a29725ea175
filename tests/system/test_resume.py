"""A run killed at any moment and resumed ends as if nothing had happened."""

import json
import random
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

import training_process
from builders import random_words
from ranks import PROCESSES, Fault
from transduce.training import checkpoint


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words and their reversals."""
    folder, words = tmp_path_factory.mktemp("text"), random_words(400)
    (folder / "source").write_text("\n".join(words) + "\n")
    (folder / "target").write_text("\n".join(word[::-1] for word in words) + "\n")
    return folder


def start(folder: Path, text: Path, moment: int | None = None, number: int = signal.SIGKILL, **options: bool):
    folder.mkdir(exist_ok=True)
    for name in ("source", "target"):
        if not (folder / name).exists():
            (folder / name).write_bytes((text / name).read_bytes())
    process = PROCESSES.Process(target=training_process.train, args=(folder, moment, number), kwargs=options)
    process.start()
    return process


def outcome(folder: Path) -> dict:
    """Return everything that a run leaves except the time it took."""
    run = folder / "run"
    result = {
        "names": sorted(str(path.relative_to(run)) for path in run.rglob("*")),
        "metrics": (run / "metrics.jsonl").read_bytes(),
    }
    for path in checkpoint.list_checkpoints(run / "checkpoints"):
        manifest = json.loads((path / "manifest.json").read_text())
        state = json.loads((path / "state.json").read_text())
        del manifest["state.json"], state["seconds"]
        result[path.name] = (manifest, state)
    for name in ("best", "final"):
        weights = load_file(run / name / "model.safetensors")
        result[name] = {key: tensor.numpy().tobytes() for key, tensor in weights.items()}
    return result


@pytest.fixture(scope="module")
def uninterrupted(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    process = start(folder, text)
    process.join()
    assert process.exitcode == 0
    return outcome(folder)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_and_resumed_run_ends_the_same(uninterrupted, text, tmp_path, seed):
    generator = random.Random(seed)
    for _ in range(6):
        process = start(tmp_path / "killed", text, moment=generator.randrange(40))
        process.join()
        assert process.exitcode == -signal.SIGKILL
    process = start(tmp_path / "killed", text)
    process.join()
    assert process.exitcode == 0
    assert outcome(tmp_path / "killed") == uninterrupted


def test_a_run_on_corpora_with_weights_ends_the_same(uninterrupted, text, tmp_path):
    for name, moments in (("whole", (None,)), ("killed", (9, 23, 31, None))):
        for moment in moments:
            process = start(tmp_path / name, text, moment, weighted=True)
            process.join()
            assert process.exitcode == (0 if moment is None else -signal.SIGKILL)
    whole = outcome(tmp_path / "whole")
    assert "data/train/mixture.json" in whole["names"]
    assert outcome(tmp_path / "killed") == whole
    assert whole["final"] != uninterrupted["final"]


LAST_SAVE = training_process.CONFIG.training.steps // training_process.CONFIG.training.validate_every


def train_with(fault: Fault, folder: Path) -> None:
    fault(0)
    training_process.train(folder)


def test_a_run_killed_in_its_last_save_before_older_checkpoints_are_removed_ends_the_same(
    uninterrupted, text, tmp_path
):
    start(tmp_path / "killed", text, moment=0).join()  # writes the text
    fault = Fault(0, "transduce.training.checkpoint:prune", "kill", call=LAST_SAVE)
    process = PROCESSES.Process(target=train_with, args=(fault, tmp_path / "killed"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process = start(tmp_path / "killed", text)
    process.join()
    assert process.exitcode == 0
    assert outcome(tmp_path / "killed") == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_run_killed_at_any_time_ends_the_same(uninterrupted, text, tmp_path, seed):
    """Kill ten times, half of them by the clock, wherever the run is then."""
    generator = random.Random(100 + seed)
    for _ in range(10):
        by_the_clock = generator.random() < 0.5
        process = start(tmp_path / "killed", text, moment=None if by_the_clock else generator.randrange(40))
        process.join(generator.uniform(0.05, 0.6) if by_the_clock else None)
        process.kill()
        process.join()
    process = start(tmp_path / "killed", text)
    process.join()
    assert process.exitcode == 0
    assert outcome(tmp_path / "killed") == uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_by_a_signal_ends_the_same(uninterrupted, text, tmp_path, number):
    process = start(tmp_path / "run", text, moment=50, number=number)
    process.join()
    assert process.exitcode == 0
    newest = checkpoint.list_checkpoints(tmp_path / "run" / "run" / "checkpoints")[-1]
    assert int(newest.name.removeprefix("step-")) < training_process.CONFIG.training.steps
    process = start(tmp_path / "run", text)
    process.join()
    assert outcome(tmp_path / "run") == uninterrupted


def test_a_damaged_checkpoint_is_passed_over(uninterrupted, text, tmp_path):
    process = start(tmp_path / "run", text, moment=80)
    process.join()
    folder = tmp_path / "run" / "run" / "checkpoints"
    newest = checkpoint.list_checkpoints(folder)[-1]
    weights = newest / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert checkpoint.newest_intact(folder) not in (None, newest)
    process = start(tmp_path / "run", text)
    process.join()
    assert outcome(tmp_path / "run") == uninterrupted
