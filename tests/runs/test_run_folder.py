"""What is the same for every kind of run."""

import inspect
import io
import os
import shutil

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from typer.main import get_command

import transduce
from builders import random_words, small_config
from inside import run as run_command
from transduce.cli.main import app
from transduce.config import GPTConfig, RunConfig, TrainingConfig, read_toml
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, DataError, TrainingError
from transduce.files import write_manifest
from transduce.runs.folder import RunFolder
from transduce.runs.lock import locked
from transduce.runs.session import TrainingSession, option_for
from transduce.runs.task import MASKED_LANGUAGE_MODEL, TEXT_CLASSES, TRANSLATION
from transduce.runs.train import train_language_model, train_masked_language_model
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
    with locked(tmp_path / "run"), pytest.raises(TrainingError, match="another process is training in"):
        transduce.train(tmp_path / "run", resume=True, steps=99, console=Console(quiet=True))
    assert (tmp_path / "run" / "run.toml").read_text() == before


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a run of two steps, with source factors, to copy."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "words").write_text("\n".join(random_words(100)) + "\n")
    (folder / "factors").write_text("a\n" * 100)
    transduce.train(
        folder / "run",
        source=folder / "words",
        target=folder / "words",
        source_factors=folder / "factors",
        vocabulary=300,
        separate=True,
        config=RunConfig(model=small_config(), training=QUICK),
        console=Console(quiet=True),
    )
    return folder / "run"


FILES = [
    f"data/{part}/{name}"
    for part in ("train", "valid")
    for name in ("source.uint16", "source.offsets", "target.uint16", "target.offsets", "factor01.uint16")
]
FILES += ["tokenizer.source.json", "tokenizer.target.json", "factors.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip", "missing"])
def test_damaged_data_are_named_and_not_used(tmp_path, prepared, name, damage):
    folder = shutil.copytree(prepared, tmp_path / "run")
    path = folder / name
    if damage == "flip":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()
    with pytest.raises(TrainingError) as caught:
        transduce.train(folder, resume=True, steps=4, console=Console(quiet=True))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("command", ["average", "report"])
def test_a_damaged_tokenizer_of_a_run_is_not_passed_on(tmp_path, prepared, command):
    folder = shutil.copytree(prepared, tmp_path / "run")
    path = folder / "tokenizer.target.json"
    path.write_text(path.read_text().replace('"a"', '"?"').replace('"b"', '"a"').replace('"?"', '"b"'))
    done = run_command(command, folder, *(["--out", tmp_path / "model"] if command == "average" else []))
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert not (tmp_path / "model").exists()


def test_data_are_checked_even_if_the_manifest_fits_them(tmp_path, prepared):
    folder = shutil.copytree(prepared, tmp_path / "run")
    path = folder / "data" / "train" / "target.uint16"
    path.write_bytes(b"\xff" * path.stat().st_size)
    write_manifest(folder, RunFolder(folder).prepared_files(TRANSLATION))
    with pytest.raises(DataError, match=r"target\.uint16"):
        transduce.train(folder, resume=True, steps=4, console=Console(quiet=True))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", None),
        ("manifest.json", "{}"),
        ("run.toml", None),
        ("run.toml", ""),
        ("run.toml", "[model]"),
    ],
)
def test_missing_or_empty_parts_of_a_run_are_named(tmp_path, prepared, name, content):
    folder = shutil.copytree(prepared, tmp_path / "run")
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    with pytest.raises(TrainingError, match=name.replace(".", r"\.")):
        transduce.train(folder, resume=True, steps=4, console=Console(quiet=True))


@pytest.mark.parametrize(("there", "written"), [(False, False), (True, False), (False, True)])
def test_an_error_before_anything_is_written_leaves_no_new_folder(tmp_path, there, written):
    folder = tmp_path / "run"
    if there:
        folder.mkdir()

    def prepare():
        if written:
            (folder / "tokenizer.json").touch()
        raise KeyError

    with pytest.raises(KeyError), locked(folder):
        prepare()
    assert folder.exists() == (there or written)


def test_a_finished_run_without_checkpoints_is_not_begun_anew(tmp_path, files):
    config = RunConfig(model=small_config(), training=QUICK)
    transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
    step = next((tmp_path / "run" / "checkpoints").glob("step-*"))
    with pytest.raises(ArtifactError, match=r"is a checkpoint.*final"):
        transduce.load(step)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(TrainingError, match=r"without checkpoints.*--from .*final"):
        transduce.train(tmp_path / "run", resume=True, steps=4, console=Console(quiet=True))


def test_a_run_goes_on_with_the_command_that_began_it(tmp_path, words, files):
    gpt = GPTConfig(layers=1, d_model=16, d_ff=16, heads=2, max_length=16)
    options = {"config": RunConfig(model=gpt, training=QUICK), "tokenizer": "char"}
    train_language_model(tmp_path / "lm", text=words, console=Console(quiet=True), **options)
    said = io.StringIO()
    train_language_model(tmp_path / "lm", resume=True, steps=3, console=Console(file=said, width=200))
    assert "from step 2" in said.getvalue()
    with pytest.raises(TrainingError, match=r"holds a run of transduce lm train, .*lm train --resume"):
        transduce.train(tmp_path / "lm", resume=True, steps=9, console=Console(quiet=True))
    assert read_toml(tmp_path / "lm" / "run.toml").training.steps == 3
    pairs = RunConfig(model=small_config(), training=QUICK)
    transduce.train(tmp_path / "pairs", config=pairs, console=Console(quiet=True), **files)
    with pytest.raises(TrainingError, match=r"holds a run of transduce train, not of transduce mlm train"):
        train_masked_language_model(tmp_path / "pairs", resume=True, console=Console(quiet=True))


@pytest.mark.parametrize(
    ("function", "command"),
    [
        (transduce.train, "train"),
        (transduce.train_language_model, "lm train"),
        (transduce.train_masked_language_model, "mlm train"),
        (transduce.finetune_text_classifier, "mlm finetune"),
        (transduce.train_image_classifier, "vision train"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_argument_is_an_option_of_the_command(function, command):
    """A message about an argument names the option."""
    found = get_command(app)
    for name in command.split():
        found = found.commands[name]
    options = {option for parameter in found.params for option in parameter.opts}
    arguments = inspect.signature(function).parameters.keys() - {"check", "console"}
    assert set(map(option_for, arguments)) <= options


def session(folder, output, *, task=TRANSLATION, processes=1, **options):
    console = Console(file=output, width=500)
    team = WorkerGroup(size=processes)
    return TrainingSession(folder, task, console, team, **options)


@pytest.mark.parametrize(
    ("options", "begin", "end"),
    [
        ({}, "transduce train", ""),
        ({"processes": 2}, "torchrun --nproc-per-node 2 -m transduce train", ""),
        ({"task": MASKED_LANGUAGE_MODEL}, "transduce mlm train", ""),
        ({"task": TEXT_CLASSES}, "transduce mlm finetune", ""),
        ({"tensorboard": True}, "transduce train", " --tensorboard"),
        (
            {"tensorboard": True, "wandb": True, "device": "cpu"},
            "transduce train",
            " --device cpu --tensorboard --wandb",
        ),
    ],
    ids=["plain", "processes", "mlm", "classes", "tensorboard", "wandb"],
)
def test_the_resume_command_continues_in_the_same_way(tmp_path, options, begin, end):
    output = io.StringIO()
    session(tmp_path / "a run", output, **options)._say_how_it_went(finished=False)
    command = output.getvalue().rstrip("\n").partition(": ")[2]
    assert command == f"{begin} --resume --out '{tmp_path / 'a run'}'{end}"


def test_a_missing_best_model_is_not_named(tmp_path):
    output = io.StringIO()
    session(tmp_path / "run", output)._say_how_it_went(finished=True)
    assert str(tmp_path / "run" / "final") in output.getvalue()
    assert str(tmp_path / "run" / "best") not in output.getvalue()


def test_a_resumed_run_uses_as_many_threads_as_before(tmp_path, files, monkeypatch):
    seen = []
    real = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda trainer: seen.append(torch.get_num_threads()) or real(trainer))
    before = torch.get_num_threads()
    config = RunConfig(model=small_config(), training=QUICK.model_copy(update={"threads": before + 2}))
    transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
    transduce.train(tmp_path / "run", resume=True, steps=3, console=Console(quiet=True))
    assert seen == [before + 2] * 2
    assert torch.get_num_threads() == before


def test_memory_that_ends_while_saving_is_one_line(tmp_path, files, monkeypatch):
    def full(self):
        raise MemoryError

    monkeypatch.setattr(Trainer, "save", full)
    config = RunConfig(model=small_config(), training=QUICK)
    with pytest.raises(TrainingError, match=r"--resume"):
        transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)


def test_chosen_checkpoints_become_a_model(tmp_path, files):
    training = QUICK.model_copy(update={"steps": 4, "validate_every": 1, "minutes": None})
    config = RunConfig(model=small_config(), training=training)
    transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
    done = run_command("average", tmp_path / "run", "--steps", "2,3", "--out", tmp_path / "model")
    assert (done.returncode, done.stderr) == (0, "")
    averaged = dict(transduce.load(tmp_path / "model").named_parameters())
    weights = [
        load_file(tmp_path / "run" / "checkpoints" / f"step-{step:08d}" / "model.safetensors")
        for step in (2, 3)
    ]
    for name, parameter in averaged.items():
        torch.testing.assert_close(parameter.detach(), (weights[0][name] + weights[1][name]) / 2)
    for steps, fact in (("2,x", "--steps"), ("9", "step 9")):
        done = run_command("average", tmp_path / "run", "--steps", steps, "--out", tmp_path / "other")
        assert done.returncode == 2
        assert fact in done.stderr
    assert run_command("average", tmp_path / "run", "--last", 1, "--out", tmp_path / "one").returncode == 0


def test_the_options_of_the_command_become_settings(tmp_path, words):
    (tmp_path / "run.toml").write_text(
        "[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 16\nd_ff = 16\nheads = 2\n"
    )
    done = run_command(
        "train",
        *("--source", words, "--target", words, "--out", tmp_path / "run"),
        *("--config", tmp_path / "run.toml", "--steps", 2, "--learning-rate", 0.25, "--seed", 9),
        *("--precision", "float32", "--save-minutes", 3, "--device", "cpu"),
        *("--set", "training.warmup=50", "--set", "model.dropout=0.5", "--set", "training.schedule=cosine"),
        *("--source-tokenizer", "char", "--target-tokenizer", "byte", "--normalize", "nfd"),
    )
    assert done.returncode == 0, done.stderr
    assert "warm-up takes 50 steps" in done.stdout
    config = read_toml(tmp_path / "run" / "run.toml")
    training = config.training
    assert (training.learning_rate, training.seed, training.precision) == (0.25, 9, "float32")
    assert (training.save_minutes, training.warmup, training.schedule) == (3, 50, "cosine")
    assert config.model.dropout == 0.5
    tokenizer = TokenizerPair.load(tmp_path / "run")
    assert (tokenizer.source.normalization, tokenizer.target.size) == ("nfd", 260)
    wrong = run_command("train", "--out", tmp_path / "no", "--set", "training.warmpu=50", "--pairs", words)
    assert wrong.returncode == 2
    assert "did you mean 'warmup'" in wrong.stderr


def test_a_vocabulary_too_small_for_the_alphabet_is_reported(tmp_path):
    characters = "".join(map(chr, range(0x4E00, 0x5200)))
    (tmp_path / "text").write_text("".join(f"{character * 2}\n" for character in characters))
    output = io.StringIO()
    gpt = GPTConfig(layers=1, d_model=16, d_ff=16, heads=2, max_length=16)
    train_language_model(
        tmp_path / "run",
        text=tmp_path / "text",
        vocabulary=300,
        config=RunConfig(model=gpt, training=QUICK),
        console=Console(file=output, width=500),
    )
    assert "vocabulary of 300 is too small" in output.getvalue()


def test_tensorboard_gets_the_history_of_a_run_that_began_without_it(tmp_path, files):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = RunConfig(model=small_config(), training=QUICK)
    transduce.train(tmp_path / "run", config=config, console=Console(quiet=True), **files)
    options = {"resume": True, "steps": 4, "tensorboard": True}
    transduce.train(tmp_path / "run", console=Console(quiet=True), **options)
    events = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("valid/nll")] == [2, 4]


@pytest.mark.parametrize(("key", "value"), [("heads = 4", "heads = 2"), ('"relu"', '"gelu"')])
def test_the_model_of_a_run_cannot_be_edited_even_if_its_shapes_stay(tmp_path, prepared, key, value):
    folder = shutil.copytree(prepared, tmp_path / "run")
    text = (folder / "run.toml").read_text()
    assert key in text
    (folder / "run.toml").write_text(text.replace(key, value))
    with pytest.raises(TrainingError, match=r"run\.toml says"):
        transduce.train(folder, resume=True, steps=4, console=Console(quiet=True))


def test_the_dropout_of_a_run_may_be_edited(tmp_path, prepared):
    folder = shutil.copytree(prepared, tmp_path / "run")
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace("\ndropout = 0.0", "\ndropout = 0.1"))
    assert transduce.train(folder, resume=True, steps=4, console=Console(quiet=True)).finished


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_a_run_writes_to_is_no_link_and_no_pipe(tmp_path, prepared, name, kind):
    folder = shutil.copytree(prepared, tmp_path / "run")
    (tmp_path / "precious").write_text("precious\n" * 100)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "precious") if kind == "link" else os.mkfifo(folder / name)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        transduce.train(folder, resume=True, steps=4, console=Console(quiet=True))
    assert (tmp_path / "precious").read_text() == "precious\n" * 100


def test_checkpoints_have_the_permissions_that_the_umask_asks_for(prepared):
    modes = {path.stat().st_mode for path in prepared.glob("checkpoints/step-*/*")}
    assert modes == {(prepared / "run.toml").stat().st_mode}
