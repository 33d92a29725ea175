"""Several processes train the same model as one; if one of them ends, all do, and the run can be resumed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch

import transduce.runs.adapter
import transduce.training.distributed
from builders import random_words
from inside import run
from ranks import Fault, end_in_ranks, run_in_ranks
from transduce import artifact
from transduce.models.build import build
from transduce.training import checkpoint
from transduce.training.peer_watch import PeerWatch
from transduce.training.trainer import Trainer

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
    """Return what ``launch`` returns: by default, what the processes print together."""
    # an RNN has layers of two kinds in its decoder
    settings = CONFIG.format(dropout=dropout, model=model, decoder_layers=1 + (model == RNN))
    (out.parent / f"{out.name}.toml").write_text(settings + extra)
    command = ["train", "--source", text / "source", "--target", text / "target", "--tokenizer", "char"]
    command += ["--out", out, "--config", out.parent / f"{out.name}.toml", *options]
    return (launch or forked)(processes, *command)


def train_with(setups, text, out, *options, **settings):
    """Return how each of two processes has ended."""
    return train(text, out, *options, processes=2, launch=partial(end_in_ranks, setups=setups), **settings)


def forked(processes, *command):
    """Return what the processes print together."""
    if processes > 1:
        return run_in_ranks(processes, *command)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def torchrun(processes, *command, program=("-m", "transduce"), exitcode=0):
    """Run it as users do."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    done = subprocess.run(
        list(map(str, [sys.executable, *launcher, *program, *command])),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == exitcode, done.stderr
    return done


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
    assert_same_bits(tmp_path / "whole", tmp_path / "halves")
    generators = newest(tmp_path / "whole")[0].generators
    assert len(generators) == 2
    assert not torch.equal(*generators)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_train_the_same_adapter_as_one(text, tmp_path, parallel):
    train(text, tmp_path / "base")
    settings = CONFIG.partition("[training]")[2] + f'parallel = "{parallel}"\nema = 0.9\nbatch_tokens = 450\n'
    (tmp_path / "tuning.toml").write_text(f'[training]{settings}validation_metric = "chrf"\n')
    command = ["train", "--source", text / "source", "--target", text / "target", "--adapter", 4]
    command += ["--from", tmp_path / "base" / "final", "--config", tmp_path / "tuning.toml"]
    metrics = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        forked(processes, *command, "--out", out)
        metrics.append([json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()])
    for one, two in zip(*metrics, strict=True):
        for name in one.keys() & {"valid_loss", "valid_chrf"}:
            assert one[name] == pytest.approx(two[name], rel=1e-3)
    source, target = torch.randint(4, 200, (2, 8, 6), generator=torch.Generator().manual_seed(0)) % 12 + 3
    base = artifact.load(tmp_path / "base" / "final")(source, target)
    one, two = (artifact.load(tmp_path / str(n) / "final")(source, target) for n in (1, 2))
    assert (one - base).abs().max() > 0.1
    torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_fixed_row_stays_as_it_is_in_all_processes(text, tmp_path, parallel):
    model = f"{TRANSFORMER}fixed_padding = true\noutput_bias = true\n"
    extra = f'parallel = "{parallel}"\nema = 0.9\nseed = 3\n'
    train(text, tmp_path / "run", processes=2, model=model, extra=extra)
    trained = artifact.load(tmp_path / "run" / "final")
    start = build(trained.config, trained.vocabulary, seed=3)
    same = (trained.output.weight == start.output.weight).all(dim=1) & (trained.output.bias == 0)
    assert same.nonzero().flatten().tolist() == [trained.vocabulary.pad]


def newest(run):
    """The last checkpoint of a run."""
    return checkpoint.load(checkpoint.list_checkpoints(run / "checkpoints")[-1])


def assert_same_bits(first, second):
    one, two = newest(first)[0], newest(second)[0]
    for part in ("model", "optimizer", "average"):
        tensors, others = getattr(one, part), getattr(two, part)
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    assert all(map(torch.equal, one.generators, two.generators))


def test_a_run_continues_with_another_number_of_processes_and_warns(text, tmp_path):
    train(text, tmp_path / "run", "--steps", 6, processes=2, launch=torchrun)
    output = train(text, tmp_path / "run", "--steps", 12, "--resume")
    assert "2 processes and now has 1" in " ".join(output.split())


PREPARE = "transduce.runs.session:prepare"
WAIT = "transduce.training.distributed:WorkerGroup.barrier"
STEP = "transduce.training.gradients:GradientAccumulator.compute"
VALIDATION = "transduce.training.validation:Validator.validate"
SAVE = "transduce.training.checkpoint:save"
FSDP = 'parallel = "fsdp"\n'


def assert_ended_in_one_line(ended):
    assert ended.exitcode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")


@pytest.mark.parametrize(
    ("fault", "exitcode", "extra"),
    [
        pytest.param(Fault(0, PREPARE, "kill"), -signal.SIGKILL, "", id="killed in preparation"),
        pytest.param(Fault(0, PREPARE, "error"), 1, "", id="error in preparation"),
        pytest.param(Fault(1, STEP, "kill", call=3), -signal.SIGKILL, "", id="killed in a step"),
        pytest.param(Fault(0, STEP, "error", call=3), 1, "", id="error in a step"),
        pytest.param(Fault(1, VALIDATION, "exit"), 3, "", id="exit in validation"),
        pytest.param(Fault(0, SAVE, "kill"), -signal.SIGKILL, "", id="killed in a save"),
        pytest.param(Fault(1, STEP, "kill", call=3), -signal.SIGKILL, FSDP, id="sharded, in a step"),
        pytest.param(Fault(0, VALIDATION, "error"), 1, FSDP, id="sharded, in validation"),
    ],
)
def test_a_process_that_ends_ends_the_others_and_the_run_resumes(text, tmp_path, fault, exitcode, extra):
    ended = train_with([fault], text, tmp_path / "run", dropout=0.2, extra=extra)
    assert ended[fault.rank].exitcode == exitcode
    assert_ended_in_one_line(ended[1 - fault.rank])
    train(text, tmp_path / "run", "--resume", processes=2, dropout=0.2, extra=extra)
    if exitcode == -signal.SIGKILL:
        train(text, tmp_path / "whole", processes=2, dropout=0.2, extra=extra)
        assert_same_bits(tmp_path / "whole", tmp_path / "run")


@dataclass(frozen=True)
class JoinWithin:
    """Shorten the time that processes wait for others that never come."""

    seconds: float

    def __call__(self, rank):
        transduce.training.distributed.JOIN_TIMEOUT = timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class KilledByTheClock:
    """Kill one process after some seconds, wherever it is then."""

    rank: int
    seconds: float

    def __call__(self, rank):
        if rank == self.rank:
            timer = threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_processes_killed_at_any_time_end_the_same(text, tmp_path, seed):
    generator, extra = random.Random(seed), "save_minutes = 1e-9\n" + FSDP * (seed % 2)
    train(text, tmp_path / "whole", processes=2, dropout=0.2, extra=extra)
    for _ in range(8):
        killer = KilledByTheClock(generator.randrange(2), generator.uniform(0.05, 1.5))
        setups = [JoinWithin(seconds=20), killer]
        ended = train_with(setups, text, tmp_path / "run", "--resume", dropout=0.2, extra=extra)
        other = ended[1 - killer.rank]
        assert "Traceback" not in other.stderr
        if ended[killer.rank].exitcode == -signal.SIGKILL and other.exitcode != 0:
            assert_ended_in_one_line(other)
    train(text, tmp_path / "run", "--resume", processes=2, dropout=0.2, extra=extra)
    assert_same_bits(tmp_path / "whole", tmp_path / "run")
    runs = [tmp_path / name for name in ("whole", "run")]
    one, two = ({path.relative_to(run) for path in run.rglob("*")} for run in runs)
    assert one == two


def test_the_first_process_does_not_prepare_a_run_that_another_has_left(text, tmp_path):
    """It would never notice by itself: it prepares for ever."""
    faults = [Fault(0, PREPARE, "stall"), Fault(1, WAIT, "kill")]
    ended = train_with(faults, text, tmp_path / "run")
    assert ended[1].exitcode == -signal.SIGKILL
    assert_ended_in_one_line(ended[0])


def save_after_the_loss(rank):
    """Let the first process begin to save, and go on when it has noticed that the other one is gone."""
    real, start, watches = checkpoint.save, PeerWatch.start, []

    def started(watch):
        watches.append(watch)
        start(watch)

    def save(*arguments):
        while not watches[0].has_lost_a_process:
            time.sleep(0.01)
        return real(*arguments)

    PeerWatch.start, checkpoint.save = started, save


def test_a_save_is_finished_although_another_process_has_ended(text, tmp_path):
    """The other one is killed while it waits for the save, after the preparation and the best model."""
    ended = train_with([save_after_the_loss, Fault(1, WAIT, "kill", call=3)], text, tmp_path / "run")
    assert_ended_in_one_line(ended[0])
    (only,) = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")
    assert checkpoint.is_intact(only)
    assert newest(tmp_path / "run")[1].step == 6


def test_torchrun_leaves_one_line_of_the_other_process(text, tmp_path):
    """The rest that is printed is torchrun's own."""
    script = tmp_path / "faulty.py"
    script.write_text(
        f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from ranks import Fault
from transduce.cli.main import main
Fault(1, {STEP!r}, "kill", call=3)(int(os.environ["RANK"]))
main()
"""
    )
    done = train(text, tmp_path / "run", processes=2, launch=partial(torchrun, program=[script], exitcode=1))
    assert done.stderr.count("error: another process of this run has ended") == 1
    assert "[rank" not in done.stderr  # with which torch marks tracebacks of the processes
    train(text, tmp_path / "run", "--resume", processes=2)


def split_from_the_start(rank):
    real = Trainer.run

    def run_split(trainer):
        trainer.progress.batch_splits = 2
        real(trainer)

    Trainer.run = run_split


BACKWARD = "torch:Tensor.backward"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("extra", ["", "batch_tokens = 450\n"], ids=["rows", "batches"])
def test_a_step_without_memory_in_one_process_is_split_in_all(text, tmp_path, rank, extra):
    """It ends as if it had been split from the start: bit for bit, with the same random numbers."""
    train_with([split_from_the_start], text, tmp_path / "split", dropout=0.2, extra=extra)
    ended = train_with([Fault(rank, BACKWARD, "memory")], text, tmp_path / "run", dropout=0.2, extra=extra)
    assert [end.exitcode for end in ended] == [0, 0]
    assert ended[0].stdout.count("out of memory") == 1
    assert newest(tmp_path / "run")[1].batch_splits == 2
    assert_same_bits(tmp_path / "split", tmp_path / "run")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(1, BACKWARD, "memory", call=7),
        Fault(0, "transduce.training.validation:Validator._compute_sums", "memory"),
    ],
    ids=["step", "validation"],
)
def test_a_run_that_was_split_has_the_same_result(text, tmp_path, fault):
    train(text, tmp_path / "whole", processes=2)
    ended = train_with([fault], text, tmp_path / "run")
    assert [end.exitcode for end in ended] == [0, 0]
    progress = [newest(tmp_path / run)[1] for run in ("whole", "run")]
    assert [each.batch_splits for each in progress] == [1, 2]
    assert progress[1].best_loss == pytest.approx(progress[0].best_loss, rel=1e-4)


def test_a_single_pair_without_memory_ends_all_processes(text, tmp_path):
    ended = train_with([Fault(1, BACKWARD, "memory", call=None)], text, tmp_path / "run")
    for each in ended:
        assert_ended_in_one_line(each)
    assert any("a single pair" in each.stderr for each in ended)  # the slower one may see the other end


def test_a_sharded_step_without_memory_ends_all_processes(text, tmp_path):
    """Its collectives are inside the forward pass: no process could compute the step again."""
    ended = train_with([Fault(1, BACKWARD, "memory")], text, tmp_path / "run", extra=FSDP)
    for each in ended:
        assert_ended_in_one_line(each)
    assert "max_tokens" in ended[1].stderr


def begin_with_other_weights(rank):
    real = transduce.runs.adapter.build
    transduce.runs.adapter.build = lambda config, vocabulary, seed: real(config, vocabulary, seed=seed + rank)


def test_all_processes_begin_with_the_weights_of_the_first(text, tmp_path):
    train(text, tmp_path / "usual", processes=2)
    train_with([begin_with_other_weights], text, tmp_path / "run")
    assert_same_bits(tmp_path / "usual", tmp_path / "run")


@pytest.mark.parametrize("missing", [0, 1])
def test_a_process_that_never_joins_is_reported(text, tmp_path, missing):
    fault = Fault(missing, "transduce.training.distributed:_find_others", "kill")
    ended = train_with([JoinWithin(seconds=1), fault], text, tmp_path / "run")[1 - missing]
    assert ended.exitcode == 2
    (line,) = ended.stderr.splitlines()
    assert "WORLD_SIZE" in line
