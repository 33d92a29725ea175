"""The run files of the recipes are valid, and say what the paper or their source says."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.config import preset, read_toml

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


def test_cmudict_in_pairs(tmp_path):
    for name, text in {"train": "A  AE\nBE  B IY\nBED  B EH D\n", "dev": "BE  B IY\nA  AH\nA  EY\n"}.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    command = [sys.executable, RECIPES / "cmudict" / "prepare.py", tmp_path / "train.gz", tmp_path / "dev.gz"]
    subprocess.run([*command, tmp_path / "out"], check=True, capture_output=True)
    assert (tmp_path / "out" / "train.tsv").read_text() == "b e d\tB EH D\n"
    assert (tmp_path / "out" / "dev.words").read_text() == "b e\na\n"
    assert (tmp_path / "out" / "dev.phones").read_text() == "B IY\nAH\tEY\tAE\n"
