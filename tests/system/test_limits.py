"""A full disk and a lack of memory, both real."""

import json
import os
import subprocess
import sys

import pytest

from builders import random_words
from transduce.training.checkpoint import is_intact, list_checkpoints

TRAIN = """
import resource, sys
from pathlib import Path

import torch
from rich.console import Console

import transduce.runs.prepare
import transduce.runs.session
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.runs.defaults import UserChoices
from transduce.runs.session import TrainingSession
from transduce.runs.task import TRANSLATION
from transduce.runs.translation_inputs import TranslationInputs
from transduce.training.distributed import WorkerGroup

text = Path(sys.argv[1])
torch.set_num_threads(1)
config = RunConfig(
    model=TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=64, d_ff=512, heads=2, dropout=0.0),
    training=TrainingConfig(steps=2, warmup=1, max_tokens=100_000, precision="float32"),
)
# The limit applies to addresses, so memory kept for reuse would count.
transduce.runs.prepare.keep_memory = transduce.runs.session.keep_memory = lambda: None
for megabytes in (250, 4000):
    folder = text / f"run-{megabytes}"
    session = TrainingSession(
        folder, TRANSLATION, Console(width=200), WorkerGroup()
    )
    inputs = TranslationInputs(source=text / "a", target=text / "a", tokenizer="char", check_text=False)
    session.prepare(inputs, UserChoices(config))
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (megabytes << 20), -1))
    print("TRAINING", flush=True)
    session.train()
    print("TRAINED", flush=True)
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
"""


@pytest.fixture
def text(tmp_path):
    (tmp_path / "a").write_text("\n".join(random_words(4000)) + "\n")
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_step_that_does_not_fit_into_memory_is_split_with_the_same_result(text):
    """All of the text is one batch."""
    command = [sys.executable, "-c", TRAIN, str(text)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    limited, unlimited = (part.partition("TRAINED")[0] for part in result.stdout.split("TRAINING")[1:])
    assert "memory" in limited
    assert "memory" not in unlimited
    losses = {}
    for name in ("run-250", "run-4000"):
        records = map(json.loads, (text / name / "metrics.jsonl").read_text().splitlines())
        losses[name] = [record["valid_loss"] for record in records if "valid_loss" in record]
    assert len(losses["run-4000"]) == 1
    assert losses["run-250"] == pytest.approx(losses["run-4000"], abs=1e-4)


HAS_TMPFS = not subprocess.run(
    ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
).returncode

FULL = """
mount -t tmpfs -o size=4m tmpfs {disk}
{transduce} train --source {text}/a --target {text}/a --tokenizer char --config {text}/run.toml \\
  --out {disk}/run
echo "code $?"
cp -r {disk}/run/checkpoints {text}/left
rm -r {disk}/run/checkpoints/step-0000000*
last=$(ls {disk}/run/checkpoints | tail -1 | sed 's/step-0*//')
{transduce} train --resume --steps $((last + 2)) --out {disk}/run
"""
CONFIG = """
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 16
d_ff = 32
heads = 2
[training]
steps = 500
warmup = 4
max_tokens = 200
validate_every = 4
keep = 1000
precision = "float32"
"""


@pytest.mark.skipif(not HAS_TMPFS, reason="a small file system cannot be mounted here")
def test_a_full_disk_ends_with_one_line_and_whole_checkpoints(text):
    (text / "disk").mkdir()
    (text / "run.toml").write_text(CONFIG)
    (text / "a").write_text((text / "a").read_text()[:2000])
    python = sys.executable
    script = FULL.format(text=text, disk=text / "disk", transduce=f"{python} -m transduce")
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    (line,) = lines
    assert line.startswith("error: cannot write")
    assert "No space left on device" in line
    assert "--resume" in line
    assert "code 2" in result.stdout
    left = list_checkpoints(text / "left")
    assert len(left) > 3
    assert all(map(is_intact, left))
    assert "from step" in result.stdout
    assert result.returncode == 0
