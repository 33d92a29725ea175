"""What is the same for every kind of run."""

import io
import shutil

import pytest
from rich.console import Console

import transduce
from builders import random_words, small_config
from transduce.config import GPTConfig, RunConfig, TrainingConfig, read_toml
from transduce.errors import ArtifactError, TrainingError
from transduce.runs.folder import RunFolder
from transduce.runs.lock import alone_in
from transduce.runs.train_text import train_text
from transduce.runs.translation_run import Run
from transduce.training.distributed import WorkerGroup
from transduce.training.trainer import Trainer

QUICK = TrainingConfig(steps=2, warmup=1, max_tokens=200, validate_every=2, precision="float32", minutes=5)


@pytest.fixture
def words(tmp_path):
    (tmp_path / "words").write_text("\n".join(random_words(100)) + "\n")
    return tmp_path / "words"


@pytest.fixture
def files(words):
    return {"source": words, "target": words, "tokenizer": "char"}


def test_a_refused_command_changes_nothing(tmp_path, files):
    config = RunConfig(model=small_config(), training=QUICK)
    transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
    before = (tmp_path / "run" / "run.toml").read_text()
    with alone_in(tmp_path / "run"), pytest.raises(TrainingError, match="another process is training in"):
        transduce.train(tmp_path / "run", resume=True, steps=99, console=Console(quiet=True))
    assert (tmp_path / "run" / "run.toml").read_text() == before


@pytest.mark.parametrize(("there", "written"), [(False, False), (True, False), (False, True)])
def test_an_error_before_anything_is_written_leaves_no_new_folder(tmp_path, there, written):
    folder = tmp_path / "run"
    if there:
        folder.mkdir()

    def prepare():
        if written:
            (folder / "tokenizer.json").touch()
        raise KeyError

    with pytest.raises(KeyError), alone_in(folder):
        prepare()
    assert folder.exists() == (there or written)


def test_a_finished_run_without_checkpoints_is_not_begun_anew(tmp_path, files):
    config = RunConfig(model=small_config(), training=QUICK)
    transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
    step = next((tmp_path / "run" / "checkpoints").glob("step-*"))
    with pytest.raises(ArtifactError, match=r"is a checkpoint; give a model folder, such as .*final"):
        transduce.load(step)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(TrainingError, match=r"whose checkpoints are gone.*--from .*final"):
        transduce.train(tmp_path / "run", resume=True, steps=4, console=Console(quiet=True))


def test_a_run_goes_on_with_the_command_that_began_it(tmp_path, words, files):
    gpt = GPTConfig(layers=1, d_model=16, d_ff=16, heads=2, max_length=16)
    options = {"config": RunConfig(model=gpt, training=QUICK), "tokenizer": "char"}
    train_text("lm", tmp_path / "lm", text=words, console=Console(quiet=True), **options)
    said = io.StringIO()
    train_text("lm", tmp_path / "lm", resume=True, steps=3, console=Console(file=said, width=200))
    assert "of other options only steps count" in said.getvalue()
    with pytest.raises(TrainingError, match=r"holds a run of transduce lm train, .*lm train --resume"):
        transduce.train(tmp_path / "lm", resume=True, steps=9, console=Console(quiet=True))
    assert read_toml(tmp_path / "lm" / "run.toml").training.steps == 3
    pairs = RunConfig(model=small_config(), training=QUICK)
    transduce.train(tmp_path / "pairs", config=pairs, console=Console(quiet=True), **files)
    with pytest.raises(TrainingError, match=r"holds a run of transduce train, not of transduce mlm train"):
        train_text("mlm", tmp_path / "pairs", resume=True, console=Console(quiet=True))


@pytest.mark.parametrize(
    ("processes", "begins"), [(1, "transduce train"), (2, "torchrun --nproc-per-node 2 -m transduce train")]
)
def test_a_stopped_run_says_how_to_go_on_with_as_many_processes(tmp_path, monkeypatch, processes, begins):
    monkeypatch.setattr(RunFolder, "train", lambda *_, **__: False)
    said = io.StringIO()
    run = Run(tmp_path / "a run", Console(file=said, width=500), WorkerGroup(size=processes))
    assert not run.carry_out(lambda: None, resume=False, steps=None, tensorboard=False)
    assert said.getvalue() == f"stopped; to go on: {begins} --resume --out '{tmp_path / 'a run'}'\n"


def test_a_best_model_that_is_not_there_is_not_named(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "train", lambda *_, **__: True)
    said = io.StringIO()
    Run(tmp_path, Console(file=said, width=500)).carry_out(
        lambda: None, resume=False, steps=None, tensorboard=False
    )
    assert said.getvalue() == f"the model is in {tmp_path / 'final'}\n"


def test_memory_that_ends_while_saving_is_one_line(tmp_path, files, monkeypatch):
    def full(self):
        raise MemoryError

    monkeypatch.setattr(Trainer, "save", full)
    config = RunConfig(model=small_config(), training=QUICK)
    with pytest.raises(TrainingError, match=r"memory does not suffice; .* goes on with --resume"):
        transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
