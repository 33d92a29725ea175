"""A full disk and a lack of memory, both real."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import transduce.runs.prepare
import transduce.runs.session
from builders import random_words
from ranks import run_in_ranks
from transduce.training.checkpoint import is_intact, list_checkpoints, step_of
from transduce.training.reservation import FILE
from transduce.training.trainer import Trainer

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


LARGE_BATCH = """
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 64
d_ff = 512
heads = 2
dropout = 0.0
[training]
steps = 2
warmup = 1
max_tokens = 100_000
precision = "float32"
"""
MEGABYTES_LEFT = 120


def limit_memory(rank):
    """Leave the second process little memory for its steps; memory kept for reuse would count."""
    transduce.runs.prepare.keep_memory = transduce.runs.session.keep_memory = lambda: None
    real = Trainer.run

    def run_with_little_memory(trainer):
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (MEGABYTES_LEFT << 20), -1))
        real(trainer)

    if rank == 1:
        Trainer.run = run_with_little_memory


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_without_memory_lets_all_split_the_step_with_the_same_result(text):
    (text / "run.toml").write_text(LARGE_BATCH)
    losses = []
    for name, setups in (("limited", [limit_memory]), ("unlimited", [])):
        command = ["train", "--source", text / "a", "--target", text / "a", "--tokenizer", "char"]
        command += ["--config", text / "run.toml", "--out", text / name]
        printed = run_in_ranks(2, *command, setups=setups)
        assert ("out of memory" in printed) == (name == "limited")
        records = map(json.loads, (text / name / "metrics.jsonl").read_text().splitlines())
        losses += [record["valid_loss"] for record in records if "valid_loss" in record]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


HAS_TMPFS = not subprocess.run(
    ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
).returncode
needs_tmpfs = pytest.mark.skipif(not HAS_TMPFS, reason="a small file system cannot be mounted here")

TRANSDUCE = f"{sys.executable} -m transduce"
NEW_RUN = f"{TRANSDUCE} train --source a --target a --tokenizer char --config run.toml --out disk/run"
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


@pytest.fixture
def place(text):
    """A folder with a text, a configuration, and a place for a small disk."""
    (text / "disk").mkdir()
    (text / "run.toml").write_text(CONFIG)
    (text / "a").write_text((text / "a").read_text()[:2000])
    return text


def run_on_small_disk(place, size, script):
    """Run a shell script in a folder whose ``disk`` has a given size; it prints ``code`` and a number."""
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o size={size} tmpfs disk\n{script}"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=place,
        check=False,
    )


@needs_tmpfs
def test_a_full_disk_ends_with_one_line_after_a_save_and_whole_checkpoints(place):
    script = f"""
{NEW_RUN}
echo "code $?"
cp -r disk/run/checkpoints left
cp disk/run/metrics.jsonl left
rm -r disk/run/checkpoints/step-0000000*
last=$(ls disk/run/checkpoints | tail -1 | sed 's/step-0*//')
{TRANSDUCE} train --resume --steps $((last + 2)) --out disk/run
"""
    result = run_on_small_disk(place, "4m", script)
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert "too little disk space" in line
    assert "--resume" in line
    assert "code 2" in result.stdout
    left = list_checkpoints(place / "left")
    assert len(left) > 3
    assert all(map(is_intact, left))
    assert not (place / "left" / FILE).exists()
    # The run ended right after a save: no step was lost.
    last = json.loads((place / "left" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == step_of(left[-1])
    assert "from step" in result.stdout
    assert result.returncode == 0


@needs_tmpfs
def test_too_small_a_disk_is_reported_before_the_first_step(place):
    script = f"""
{NEW_RUN}
echo "code $?"
ls -A disk/run disk/run/checkpoints
mount -o remount,size=4m disk
{TRANSDUCE} train --resume --steps 5 --out disk/run
"""
    result = run_on_small_disk(place, "300k", script)
    (line,) = result.stderr.splitlines()
    needed, free = map(float, re.findall(r"([\d.]+) MB", line))
    assert needed > free > 0
    assert "code 2" in result.stdout
    before, _, after = result.stdout.partition("code 2")
    assert "NLL" not in before
    assert "metrics.jsonl" not in after.partition("resuming")[0]
    assert FILE not in after
    assert result.returncode == 0


# Another program fills the disk during the first steps, and goes on to do so whenever there is space.
FILLED = """
import os, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transduce.cli.main import main

def fill(*_):
    with open("disk/others", "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass

register_optimizer_step_pre_hook(fill)
main()
"""


@needs_tmpfs
def test_a_disk_that_others_fill_before_the_first_save_loses_no_step(place):
    (place / "filled.py").write_text(FILLED)
    (place / "run.toml").write_text(CONFIG.replace("validate_every = 4", "validate_every = 60"))
    script = f"""
{NEW_RUN.replace("-m transduce", "filled.py")} > disk.log
echo "code $?"
cp -r disk/run/checkpoints disk/run/metrics.jsonl .
df --output=avail disk | tail -1
rm disk/others
{TRANSDUCE} train --resume --steps 62 --out disk/run
ls -A disk/run/checkpoints
"""
    result = run_on_small_disk(place, "4m", script)
    (line,) = result.stderr.splitlines()
    assert "too little disk space" in line
    assert "code 2" in result.stdout
    (only,) = list_checkpoints(place / "checkpoints")
    assert step_of(only) == 60
    assert is_intact(only)
    logged = [json.loads(line)["step"] for line in (place / "metrics.jsonl").read_text().splitlines()]
    assert logged == [50, 60]  # the first of them on a full disk
    assert "from step 60" in result.stdout
    assert FILE not in result.stdout
    assert result.returncode == 0
