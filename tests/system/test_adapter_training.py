"""An adapter learns a task that its model has not learned, and a killed run ends as one that was not."""

import json
import random
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

import training_process
import transduce
from builders import random_words
from ranks import PROCESSES
from transduce import artifact
from transduce.artifact import ADAPTER_WEIGHTS
from transduce.training import checkpoint

WORDS = [word[:5] for word in random_words(300)]
UNSEEN = [word for word in (word[:5] for word in random_words(400)) if word not in WORDS][:40]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model that has learned to copy words in small and in capital letters."""
    folder = tmp_path_factory.mktemp("base")
    texts = [*WORDS, *(word.upper() for word in WORDS)]
    for name in ("source", "target"):
        (folder / name).write_text("\n".join(texts) + "\n")
    run(folder, training_process.train_base)
    return folder / "run" / "final"


def run(folder: Path, train, *arguments: object) -> int | None:
    process = PROCESSES.Process(target=train, args=(folder, *arguments))
    process.start()
    process.join()
    return process.exitcode


def tune(folder: Path, base: Path, moment: int | None = None) -> int | None:
    """Train an adapter that writes words in capital letters."""
    folder.mkdir(exist_ok=True)
    (folder / "source").write_text("\n".join(WORDS) + "\n")
    (folder / "target").write_text("\n".join(word.upper() for word in WORDS) + "\n")
    return run(folder, training_process.train_adapter, base, moment)


def outcome(folder: Path) -> dict:
    """Return everything that a run leaves except the time it took."""
    run = folder / "run"
    result = {
        "names": sorted(str(path.relative_to(run)) for path in run.rglob("*")),
        "metrics": (run / "metrics.jsonl").read_bytes(),
    }
    for path in checkpoint.list_checkpoints(run / "checkpoints"):
        manifest = json.loads((path / "manifest.json").read_text())
        del manifest["state.json"]
        result[path.name] = manifest
    for name in ("start", "best", "final"):
        weights = load_file(run / name / ADAPTER_WEIGHTS)
        result[name] = {key: tensor.numpy().tobytes() for key, tensor in weights.items()}
    return result


@pytest.fixture(scope="module")
def tuned(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    assert tune(folder, base) == 0
    return folder


def share_right(model: Path, wanted) -> float:
    translations = transduce.Translator.load(model, precision="float32", device="cpu")(UNSEEN)
    return sum(t.text == wanted(word) for t, word in zip(translations, UNSEEN, strict=True)) / len(UNSEEN)


def test_an_adapter_learns_and_its_model_forgets_nothing(base, tuned, tmp_path):
    before = share_right(base, str)
    assert before > 0.8
    assert share_right(base, str.upper) == 0
    assert share_right(tuned / "run" / "final", str.upper) > 0.8
    assert share_right(base, str) == before
    artifact.merge_adapter(tuned / "run" / "final", tmp_path / "merged")
    merged = share_right(tmp_path / "merged", str.upper)
    assert merged == share_right(tuned / "run" / "final", str.upper)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_and_resumed_run_ends_the_same(base, tuned, tmp_path, seed):
    generator = random.Random(seed)
    for _ in range(3):
        assert tune(tmp_path / "killed", base, generator.randrange(60)) == -signal.SIGKILL
    assert tune(tmp_path / "killed", base) == 0
    assert outcome(tmp_path / "killed") == outcome(tuned)
