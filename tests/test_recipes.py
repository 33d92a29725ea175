"""The run files of the recipes are valid, and say what the paper or their source says."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from builders import random_words
from transduce.config import preset, read_toml
from transduce.runs import autotune
from transduce.runs.autotune import measure_speed
from transduce.runs.defaults import UserChoices
from transduce.runs.prepare import prepare
from transduce.runs.translation_inputs import TranslationInputs
from transduce.training.distributed import WorkerGroup
from transduce.training.trainer import Trainer

RECIPES = Path(__file__).parents[1] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.parent.name)
def test_every_run_file_is_valid(path):
    config = read_toml(path)
    assert config.training.average <= config.training.keep


@pytest.mark.parametrize(("name", "steps", "averaged"), [("base", 100_000, 5), ("big", 300_000, 20)])
def test_wmt14_is_the_papers(name, steps, averaged):
    config = read_toml(RECIPES / "wmt14" / f"{name}.toml")
    assert config.model == preset(name).model
    assert (config.training.steps, config.training.average) == (steps, averaged)
    assert (config.training.warmup, config.training.batch_tokens) == (4000, 25_000)


@pytest.mark.parametrize("name", ["base", "big"])
def test_wmt14_can_be_planned_from_a_few_batches(name, tmp_path, monkeypatch):
    """All sizes a hundredth or so of the paper's; steps of several batches, each too slow to take whole."""
    words = random_words(400)
    (tmp_path / "a").write_text("\n".join(words))
    (tmp_path / "b").write_text("\n".join(word[::-1] for word in words))
    config = read_toml(RECIPES / "wmt14" / f"{name}.toml")
    training = config.training.model_copy(update={"max_tokens": 62, "batch_tokens": 250})
    sizes = {"d_model": 16, "d_ff": 32, "heads": 4}
    small = config.model_copy(update={"training": training, "model": config.model.model_copy(update=sizes)})
    computed = []
    real = Trainer.compute_gradients

    def compute_gradients(trainer, batches):
        computed.append(len(batches))
        return real(trainer, batches)

    monkeypatch.setattr(Trainer, "compute_gradients", compute_gradients)
    float32 = autotune.FastestSettings("float32", "for the test")
    monkeypatch.setattr(autotune, "_fastest_settings", lambda *_: float32)
    inputs = TranslationInputs(source=tmp_path / "a", target=tmp_path / "b", tokenizer="char")
    run = prepare(tmp_path / "run", inputs, UserChoices(small), Console(quiet=True), WorkerGroup())
    speed = measure_speed(run, torch.device("cpu"), seconds=0.0)
    assert computed == [1, 1, 1]
    batches_per_step = speed.seconds_per_step * speed.tokens_per_second / 62
    assert 3 < batches_per_step < 6  # however few of them were computed


def test_cmudict_in_pairs(tmp_path):
    for name, text in {"train": "A  AE\nBE  B IY\nBED  B EH D\n", "dev": "BE  B IY\nA  AH\nA  EY\n"}.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    command = [sys.executable, RECIPES / "cmudict" / "prepare.py", tmp_path / "train.gz", tmp_path / "dev.gz"]
    subprocess.run([*command, tmp_path / "out"], check=True, capture_output=True)
    assert (tmp_path / "out" / "train.tsv").read_text() == "b e d\tB EH D\n"
    assert (tmp_path / "out" / "dev.words").read_text() == "b e\na\n"
    assert (tmp_path / "out" / "dev.phones").read_text() == "B IY\nAH\tEY\tAE\n"
