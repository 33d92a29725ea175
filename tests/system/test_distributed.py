"""Several processes train the same model as one."""

import json
import os
import subprocess
import sys

import pytest
import torch

from builders import random_words
from inside import run
from ranks import run_in_ranks
from transduce import artifact
from transduce.training import checkpoint

TRANSFORMER = "d_ff = 32\nheads = 2\n"
RNN = 'family = "rnn"\nd_hidden = 16\n'
CONFIG = """
[model]
encoder_layers = 2
decoder_layers = {decoder_layers}
d_model = 16
dropout = {dropout}
{model}
[training]
steps = 12
warmup = 4
learning_rate = 0.01
max_tokens = 200
validate_every = 6
average = 1
precision = "float32"
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words and their reversals."""
    folder, words = tmp_path_factory.mktemp("text"), random_words(300)
    (folder / "source").write_text("\n".join(words) + "\n")
    (folder / "target").write_text("\n".join(word[::-1] for word in words) + "\n")
    return folder


def train(text, out, *options, processes=1, dropout=0.0, extra="", model=TRANSFORMER, launch=None):
    # an RNN has layers of two kinds in its decoder
    settings = CONFIG.format(dropout=dropout, model=model, decoder_layers=1 + (model == RNN))
    (out.parent / f"{out.name}.toml").write_text(settings + extra)
    command = ["train", "--source", text / "source", "--target", text / "target", "--tokenizer", "char"]
    command += ["--out", out, "--config", out.parent / f"{out.name}.toml", *options]
    return (launch or forked)(processes, *command)


def forked(processes, *command):
    """Return what the processes print together."""
    if processes > 1:
        return run_in_ranks(processes, *command)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def torchrun(processes, *command):
    """Run it as users do."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    done = subprocess.run(
        list(map(str, [sys.executable, *launcher, "-m", "transduce", *command])),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        pytest.param(TRANSFORMER, "", id="batches split by rows"),
        pytest.param(TRANSFORMER, "batch_tokens = 450\n", id="batches distributed"),
        pytest.param(TRANSFORMER, 'batch_tokens = 450\nparallel = "fsdp"\nema = 0.9\n', id="sharded"),
        pytest.param(RNN, "", id="rnn"),
        pytest.param(RNN, 'batch_tokens = 450\nparallel = "fsdp"\nema = 0.9\n', id="rnn, sharded"),
    ],
)
def test_two_processes_train_the_same_model_as_one(text, tmp_path, model, extra):
    train(text, tmp_path / "one", extra=extra, model=model)
    output = train(text, tmp_path / "two", processes=2, extra=extra, model=model)
    assert output.count("step 12: validation") == 1  # only the main process prints
    logs = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    logs = [[line for line in log if "valid_loss" in line] for log in logs]
    assert [log["step"] for log in logs[1]] == [6, 12]
    for one, two in zip(*logs, strict=True):
        assert one["valid_loss"] == pytest.approx(two["valid_loss"], rel=1e-4)
        assert all(line["shuffled_source_loss"] > line["valid_loss"] for line in (one, two))
    # The weights themselves may differ: the gradient of a key's bias is zero, up to rounding.
    source, target = torch.randint(4, 200, (2, 8, 6), generator=torch.Generator().manual_seed(0))
    for name in ("best", "final"):
        one, two = (artifact.load(tmp_path / run / name)(source, target) for run in ("one", "two"))
        assert one.std() > 0.5
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param("save_minutes = 1e-9\n", id="every step saved"),
        pytest.param('parallel = "fsdp"\nema = 0.9\n', id="sharded"),
    ],
)
def test_two_processes_resume_to_the_same_bits(text, tmp_path, extra):
    """Each process continues with its own random numbers for dropout."""
    options = {"processes": 2, "dropout": 0.2, "extra": extra}
    train(text, tmp_path / "whole", **options)
    train(text, tmp_path / "halves", "--steps", 6, **options)
    train(text, tmp_path / "halves", "--steps", 12, "--resume", **options)
    ends = [checkpoint.list_checkpoints(tmp_path / run / "checkpoints")[-1] for run in ("whole", "halves")]
    snapshots = [checkpoint.load(end)[0] for end in ends]
    for part in ("model", "optimizer", "average"):
        one, two = (getattr(snapshot, part) for snapshot in snapshots)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    assert len(snapshots[0].generators) == 2
    assert not torch.equal(*snapshots[0].generators)
    assert all(map(torch.equal, snapshots[0].generators, snapshots[1].generators))


def test_a_run_continues_with_another_number_of_processes_and_warns(text, tmp_path):
    train(text, tmp_path / "run", "--steps", 6, processes=2, launch=torchrun)
    output = train(text, tmp_path / "run", "--steps", 12, "--resume")
    assert "2 processes and now has 1" in " ".join(output.split())
