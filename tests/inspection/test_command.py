"""``transduce inspect`` on the command line."""

import json

import pytest
from subjects import ENGLISH, GERMAN, model_for

import transduce
from builders import small_rnn_config
from transduce.cli.main import app
from transduce.errors import ConfigError, TransduceError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = model_for(ENGLISH, GERMAN)
    transduce.save(model, tmp_path / "model", tokenizer)
    (tmp_path / "en").write_text(f"{ENGLISH}\nthe fox\n", encoding="utf-8")
    (tmp_path / "notes").write_text("to be kept")
    (tmp_path / "de").write_text(f"{GERMAN}\nder Fuchs\n", encoding="utf-8")
    return tmp_path


def run(*arguments):
    app(["inspect", *arguments], standalone_mode=False, prog_name="transduce")


def test_a_page(folder, capsys):
    run("model", ENGLISH, "--beam", "2")
    assert capsys.readouterr().out == "inspection.html\n"
    assert ENGLISH in (folder / "inspection.html").read_text(encoding="utf-8")


def test_a_page_and_an_image_of_a_given_target(folder, capsys):
    run("model", ENGLISH, "--target", GERMAN, "--out", "page.html", "--png", "map.png", "--layer", "1")
    assert capsys.readouterr().out == "page.html\nmap.png\n"
    assert '"targetWasGiven":true' in (folder / "page.html").read_text(encoding="utf-8")
    run("model", ENGLISH, "--png", "other.png")
    assert capsys.readouterr().out == "other.png\n"
    assert not (folder / "inspection.html").exists()


def test_a_walk(folder, capsys):
    run("model", ENGLISH, "--walk", "--out", "walk.html", "--beam", "2")
    assert capsys.readouterr().out == "walk.html\n"
    page = (folder / "walk.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "class WalkModel" in page
    assert "/* " not in page.partition("<style>")[0]


@pytest.mark.parametrize(
    "more", [["--target", "x"], ["--png", "map.png"], ["--png", "map.png", "--layer", "1"]]
)
def test_options_that_contradict_a_walk(folder, more):
    with pytest.raises(ConfigError, match=f"{more[0]}.*--walk"):
        run("model", ENGLISH, "--walk", *more)
    with pytest.raises(ConfigError, match="--walk"):
        run("model", "--corpus", "en", "de", "--walk")


def test_heads(folder, capsys):
    run("model", "--corpus", "en", "de", "--json", "heads.json", "--limit", "1")
    assert "1 sentences" in capsys.readouterr().out
    heads = json.loads((folder / "heads.json").read_text())["heads"]
    assert len(heads) == 24
    assert {head["loss_error"] for head in heads} == {None}  # one sentence has no standard error


@pytest.mark.parametrize("attention", ["additive", "multiplicative", "none"])
def test_a_recurrent_network(folder, attention):
    model, tokenizer = model_for(ENGLISH, GERMAN, config=small_rnn_config(attention=attention))
    transduce.save(model, folder / "rnn", tokenizer)
    run("rnn", ENGLISH, "--out", "page.html")
    assert ENGLISH in (folder / "page.html").read_text(encoding="utf-8")
    if attention == "none":
        with pytest.raises(ConfigError, match="--png"):
            run("rnn", ENGLISH, "--png", "map.png")
    else:
        run("rnn", ENGLISH, "--png", "map.png")
        assert (folder / "map.png").exists()


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ([], ["--corpus SOURCE TARGET"]),
        (["hello", "--corpus", "en", "de"], ["a sentence and --corpus"]),
        (["--corpus", "en", "de", "--png", "x"], ["--png", "--corpus"]),
        (["--corpus", "en", "de", "--beam", "4"], ["--beam", "--corpus"]),
        (["hello", "--json", "x"], ["--json", "--corpus"]),
        (["hello", "--layer", "1"], ["--layer", "--png FILE"]),
        (["the fox", "--out", "none/x.html"], ["the folder none does not exist"]),
        (["the fox", "--png", "model"], ["model is a folder"]),
        (["--corpus", "en", "de", "--json", "none/x.json"], ["the folder none does not exist"]),
        (["the fox", "--out", "en"], ["en exists", "HTML"]),
        (["the fox", "--out", "x.html", "--png", "x.html"], ["--out and --png are both x.html"]),
        (["the fox", "--png", "de"], ["de exists", "PNG"]),
        (["--corpus", "en", "de", "--json", "de"], ["de is an input"]),
        (["--corpus", "en", "de", "--json", "model/config.json"], ["model/config.json is an input"]),
        (["--corpus", "en", "de", "--json", "notes"], ["notes exists", "JSON"]),
        (["the fox", "--png", "x.png", "--layer", "9"], ["--layer 9", "1 to 2"]),
    ],
)
def test_invalid_combinations(folder, arguments, facts):
    with pytest.raises(ConfigError) as caught:
        run("model", *arguments)
    for fact in facts:
        assert fact in str(caught.value)
    assert not list(folder.glob("*.html"))


def test_a_page_is_overwritten(folder):
    run("model", ENGLISH, "--beam", "2")
    run("model", "the fox", "--beam", "2")
    assert ENGLISH not in (folder / "inspection.html").read_text(encoding="utf-8")


def test_no_model(folder):
    with pytest.raises(TransduceError, match="elsewhere"):
        run("elsewhere", ENGLISH)
