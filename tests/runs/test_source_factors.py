"""Runs with source factors, from files to translations."""

import random

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import transduce
from builders import small_config, small_rnn_config
from inside import run as run_command
from transduce.config import RunConfig, TrainingConfig, read_toml
from transduce.errors import ConfigError, DataError, TransduceError

QUICK = TrainingConfig(
    steps=6, warmup=2, learning_rate=0.01, max_tokens=200, validate_every=3, precision="float32"
)
CONFIG = RunConfig(model=small_config(dropout=0.1), training=QUICK)


def write_text(folder, count: int = 400) -> None:
    """Write random words with a random case, and targets that depend on the cases alone."""
    generator = random.Random(0)
    sources, cases, targets = [], [], []
    for _ in range(count):
        words = generator.choices(["dog", "cat", "house", "river"], k=generator.randint(1, 4))
        values = generator.choices(["nominative", "genitive", "dative"], k=len(words))
        sources.append(" ".join(words))
        cases.append(" ".join(values))
        targets.append(" ".join(value[0] for value in values))
    for name, lines in (("source", sources), ("case", cases), ("target", targets)):
        (folder / name).write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_text(folder)
    return folder


@pytest.fixture
def files(text):
    return {"source": text / "source", "target": text / "target", "source_factors": text / "case"}


def train(out, **options):
    return transduce.train(out, check=False, console=Console(quiet=True), **options)


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A run that had time to learn, on factors, and one with the same text without factors."""
    training = QUICK.model_copy(
        update={"steps": 450, "warmup": 30, "validate_every": 450, "max_tokens": 600, "label_smoothing": 0.0}
    )
    config = RunConfig(model=small_config(d_model=32, d_ff=64), training=training)
    folder, files = tmp_path_factory.mktemp("runs"), {"source": text / "source", "target": text / "target"}
    return (
        train(folder / "factored", config=config, source_factors=[text / "case"], **files),
        train(folder / "plain", config=config, **files),
    )


def test_a_model_learns_from_factors_what_the_text_does_not_say(trained):
    factored, plain = (
        next(line["valid_loss"] for line in run.metrics if "valid_loss" in line) for run in trained
    )
    assert factored < 0.1
    assert plain > 0.5
    translator = trained[0].translator()
    assert translator("dog river", factors=["genitive dative"]).text == "g d"
    assert [
        translation.text
        for translation in translator(["cat", "", "dog dog"], factors=[["dative", "", "dative nominative"]])
    ] == ["d", "", "d n"]


def test_every_precision_and_search_reads_factors(trained):
    for options in (
        {"precision": "float32"},
        {"precision": "int8", "alignments": True},
        {"diverse_groups": 2, "coverage_penalty": 0.1},
        {"diverse_groups": 1, "coverage_penalty": 0.1},
        {"sample": True, "top_k": 1},
    ):
        translator = transduce.Translator.load(trained[0].final, **options)
        assert translator("dog river", factors=["genitive dative"]).text == "g d"
    ensemble = transduce.Translator.load(trained[0].final, trained[0].best)
    assert ensemble("cat cat", factors=["dative genitive"]).text == "d g"
    with pytest.raises(DataError):
        transduce.Translator.load(trained[0].final, trained[1].final)


def test_long_lines_are_split_with_their_factors(trained):
    translator = trained[0].translator()
    cases = ["genitive"] * 12 + ["dative"] * 12
    with pytest.warns(UserWarning, match="split"):
        translation = translator(" ".join(["dog", "house"] * 12), factors=[" ".join(cases)])
    assert translation.pieces > 1
    letters = translation.text.split()
    assert (set(letters[:8]), set(letters[-8:])) == ({"g"}, {"d"})


def test_an_unknown_factor_is_translated(trained):
    assert trained[0].translator()("dog", factors=["vocative"]).candidates


def test_a_resumed_run_ends_the_same(files, tmp_path):
    whole = train(tmp_path / "whole", config=CONFIG, **files)
    train(tmp_path / "part", config=CONFIG, steps=3, **files)
    part = train(tmp_path / "part", resume=True, steps=6)
    first, second = (load_file(run.final / "model.safetensors") for run in (whole, part))
    assert any("factor" in name for name in first)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_files_decide_the_sizes(files, text, tmp_path):
    rnn = RunConfig(model=small_rnn_config(), training=QUICK)
    run = train(tmp_path / "run", config=rnn, validation_metric="chrf", separate=True, **files)
    assert read_toml(tmp_path / "run" / "run.toml").model.source_factors == [2 + 3]
    assert transduce.load(run.final).config.source_factors == [5]
    twice = {**files, "source_factors": [text / "case", text / "source"]}
    run = train(tmp_path / "two", config=CONFIG, **twice)
    assert transduce.load(run.final).config.source_factors == [5, 6]


def test_a_model_with_factors_is_fine_tuned_with_factors(trained, files, tmp_path):
    run = train(tmp_path / "run", from_model=trained[0].final, steps=1, **files)
    assert run.translator()("dog river", factors=["genitive dative"]).text == "g d"
    del files["source_factors"]
    with pytest.raises(ConfigError, match="--source-factor"):
        train(tmp_path / "other", from_model=trained[0].final, steps=1, **files)


def test_a_factors_file_of_another_model_is_refused(trained, tmp_path):
    model, tokenizer = transduce.load(trained[0].final), trained[0].translator().tokenizer
    transduce.save(model, tmp_path / "model", tokenizer)
    (tmp_path / "model" / "factors.json").write_text('[["a", "b"]]')
    with pytest.raises(TransduceError, match=r"factors\.json"):
        transduce.Translator.load(tmp_path / "model")


@pytest.mark.parametrize(("line", "content"), [(2, "{first}\na a a a a\n"), (2, "{first}\n"), (1, "")])
def test_factors_that_do_not_fit_are_refused_before_anything_is_written(line, content, files, tmp_path):
    path, first = tmp_path / "case", files["source_factors"].read_text().split("\n")[0]
    path.write_text(content.format(first=first))
    files["source_factors"] = path
    with pytest.raises(DataError, match=f"{path}, line {line}:"):
        train(tmp_path / "run", config=CONFIG, **files)
    assert not (tmp_path / "run").exists()


def test_settings_that_do_not_go_with_factors_are_refused(files, text, tmp_path):
    out = tmp_path / "run"
    for fact, options in (
        ("bpe_dropout", {"overrides": {"training.bpe_dropout": 0.1}}),
        ("model.source_factors", {"overrides": {"model.source_factors": [9]}}),
        ("word by word", {"tokenizer": "char"}),
        ("--valid-source-factor", {"valid_source": text / "source", "valid_target": text / "target"}),
        ("--valid-source-factor", {"valid_source_factors": text / "case"}),
    ):
        with pytest.raises(TransduceError, match=fact):
            train(out, config=CONFIG, **files, **options)
    with pytest.raises(ConfigError, match=r"model\.source_factors"):
        train(
            out,
            source=files["source"],
            target=files["target"],
            config=CONFIG,
            overrides={"model.source_factors": [5]},
        )
    valid = {f"valid_{name}": path for name, path in files.items()}
    assert train(out, config=CONFIG, **files, **valid).finished


def test_the_commands(trained, text, tmp_path):
    (tmp_path / "in").write_text("dog river\n\ncat\n")
    (tmp_path / "case").write_text("genitive dative\n\nnominative\n")
    options = ["--input", tmp_path / "in", "--source-factor", tmp_path / "case"]
    done = run_command("translate", trained[0].final, *options)
    assert (done.returncode, done.stdout) == (0, "g d\n\nn\n")

    def refused(*arguments) -> str:
        done = run_command(*arguments)
        assert done.returncode == 2
        assert len(done.stderr.strip().split("\n")) == 1
        return done.stderr

    assert "--source-factor" in refused("translate", trained[0].final, *options[:2])
    assert "--source-factor" in refused("translate", trained[1].final, *options)
    same = ["--output", tmp_path / "case"]
    assert "read and written" in refused("translate", trained[0].final, *options, *same)
    (tmp_path / "case").write_text("genitive dative\n\n\n")
    assert f"{tmp_path / 'case'}, line 3:" in refused("translate", trained[0].final, *options)
    for command in (
        ["score", trained[0].final, "--source", text / "source", "--target", text / "target"],
        ["inspect", trained[0].final, "dog"],
        ["evaluate", trained[0].final, "--source", text / "source", "--reference", text / "target"],
    ):
        assert "--source-factor" in refused(*command)
