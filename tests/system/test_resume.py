"""A run killed at any moment and resumed ends as if nothing had happened."""

import json
import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

import training_process
from builders import random_words
from transduce.training import checkpoint

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["training_process"])


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words and their reversals."""
    folder, words = tmp_path_factory.mktemp("text"), random_words(400)
    (folder / "source").write_text("\n".join(words) + "\n")
    (folder / "target").write_text("\n".join(word[::-1] for word in words) + "\n")
    return folder


def start(folder: Path, text: Path, die_at: int | None = None):
    folder.mkdir(exist_ok=True)
    for name in ("source", "target"):
        if not (folder / name).exists():
            (folder / name).write_bytes((text / name).read_bytes())
    process = PROCESSES.Process(target=training_process.train, args=(folder, die_at))
    process.start()
    return process


def outcome(folder: Path) -> dict:
    """All that a run leaves, but the time it took."""
    run = folder / "run"
    found = {"metrics": (run / "metrics.jsonl").read_bytes()}
    for path in checkpoint.list_checkpoints(run / "checkpoints"):
        manifest = json.loads((path / "manifest.json").read_text())
        state = json.loads((path / "state.json").read_text())
        del manifest["state.json"], state["seconds"]
        found[path.name] = (manifest, state)
    for name in ("best", "final"):
        weights = load_file(run / name / "model.safetensors")
        found[name] = {key: tensor.numpy().tobytes() for key, tensor in weights.items()}
    return found


@pytest.fixture(scope="module")
def undisturbed(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    process = start(folder, text)
    process.join()
    assert process.exitcode == 0
    return outcome(folder)


def kill_and_resume(folder: Path, text: Path, kills: int, seed: int) -> None:
    generator, killed = random.Random(seed), 0
    while killed < kills:
        in_a_save = generator.random() < 0.5
        process = start(folder, text, die_at=generator.randrange(40) if in_a_save else None)
        process.join(None if in_a_save else generator.uniform(0.05, 0.6))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            break
    process = start(folder, text)
    process.join()
    assert process.exitcode == 0
    assert killed >= min(kills, 10)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_and_resumed_is_the_same(undisturbed, text, tmp_path, seed):
    kill_and_resume(tmp_path / "killed", text, kills=12, seed=seed)
    assert outcome(tmp_path / "killed") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_a_hundred_times(undisturbed, text, tmp_path, seed):
    kill_and_resume(tmp_path / "killed", text, kills=10, seed=100 + seed)
    assert outcome(tmp_path / "killed") == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_politely_is_the_same(undisturbed, text, tmp_path, number):
    process = start(tmp_path / "run", text)
    metrics = tmp_path / "run" / "run" / "checkpoints"
    while process.is_alive() and not list(metrics.glob("step-*")):
        process.join(0.01)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 0
    steps = [int(path.name[5:]) for path in checkpoint.list_checkpoints(metrics)]
    assert steps[-1] < training_process.CONFIG.training.steps
    process = start(tmp_path / "run", text)
    process.join()
    assert outcome(tmp_path / "run") == undisturbed


def test_a_damaged_checkpoint_is_passed_over(undisturbed, text, tmp_path):
    process = start(tmp_path / "run", text)
    folder = tmp_path / "run" / "run" / "checkpoints"
    while process.is_alive() and len(checkpoint.list_checkpoints(folder)) < 3:
        process.join(0.01)
    process.kill()
    process.join()
    newest = checkpoint.list_checkpoints(folder)[-1]
    weights = newest / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    said = []
    assert checkpoint.newest(folder, said.append) not in (None, newest)
    assert "is damaged: going on from the checkpoint before it" in said[0]
    process = start(tmp_path / "run", text)
    process.join()
    assert outcome(tmp_path / "run") == undisturbed
