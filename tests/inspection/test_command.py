"""``transduce inspect``, as it is typed."""

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


def test_a_page_and_a_picture_of_a_given_target(folder, capsys):
    run("model", ENGLISH, "--target", GERMAN, "--out", "page.html", "--png", "map.png", "--layer", "1")
    assert capsys.readouterr().out == "page.html\nmap.png\n"
    assert '"targetWasGiven":true' in (folder / "page.html").read_text(encoding="utf-8")
    run("model", ENGLISH, "--png", "other.png")
    assert capsys.readouterr().out == "other.png\n"
    assert not (folder / "inspection.html").exists()


def test_heads(folder, capsys):
    run("model", "--corpus", "en", "de", "--json", "heads.json", "--limit", "1")
    assert "1 sentences" in capsys.readouterr().out
    heads = json.loads((folder / "heads.json").read_text())["heads"]
    assert len(heads) == 24
    assert {head["loss_error"] for head in heads} == {None}  # one sentence tells nothing of chance


@pytest.mark.parametrize("attention", ["additive", "multiplicative", "none"])
def test_a_recurrent_network(folder, attention):
    model, tokenizer = model_for(ENGLISH, GERMAN, config=small_rnn_config(attention=attention))
    transduce.save(model, folder / "rnn", tokenizer)
    run("rnn", ENGLISH, "--out", "page.html")
    assert ENGLISH in (folder / "page.html").read_text(encoding="utf-8")
    if attention == "none":
        with pytest.raises(ConfigError, match=r"^the model has no attention to draw; leave the picture out$"):
            run("rnn", ENGLISH, "--png", "map.png")
    else:
        run("rnn", ENGLISH, "--png", "map.png")
        assert (folder / "map.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to inspect was given; give a sentence, or --corpus SOURCE TARGET"),
        (["hello", "--corpus", "en", "de"], "both a sentence and --corpus were given; give one of them"),
        (
            ["--corpus", "en", "de", "--png", "x"],
            "--png goes with a sentence, not with --corpus; leave it out",
        ),
        (
            ["--corpus", "en", "de", "--beam", "4"],
            "--beam goes with a sentence, not with --corpus; leave it out",
        ),
        (["hello", "--json", "x"], "--json goes with --corpus, not with a sentence; leave it out"),
        (["hello", "--layer", "1"], "--layer is for the picture; add --png FILE"),
        (["the fox", "--out", "none/x.html"], "there is no folder none; make it, or choose another place"),
        (["the fox", "--png", "model"], "model is a folder; name a file in it"),
        (
            ["--corpus", "en", "de", "--json", "none/x.json"],
            "there is no folder none; make it, or choose another place",
        ),
        (["the fox", "--out", "en"], "en is there already, and is no page; choose another file"),
        (
            ["the fox", "--out", "x.html", "--png", "x.html"],
            "both the page and the picture would be x.html; choose another --png",
        ),
        (["the fox", "--png", "de"], "de is there already, and is no picture; choose another file"),
        (
            ["--corpus", "en", "de", "--json", "de"],
            "de is both what is read and what is written; choose another file",
        ),
        (
            ["--corpus", "en", "de", "--json", "model/config.json"],
            "model/config.json is both what is read and what is written; choose another file",
        ),
        (
            ["--corpus", "en", "de", "--json", "notes"],
            "notes is there already, and is no JSON; choose another file",
        ),
        (["the fox", "--png", "x.png", "--layer", "9"], "there is no layer 9; choose one of 1 to 2"),
    ],
)
def test_combinations_that_make_no_sense(folder, arguments, said):
    with pytest.raises(ConfigError) as caught:
        run("model", *arguments)
    assert str(caught.value) == said
    assert not list(folder.glob("*.html"))


def test_a_page_is_written_over(folder):
    run("model", ENGLISH, "--beam", "2")
    run("model", "the fox", "--beam", "2")
    assert ENGLISH not in (folder / "inspection.html").read_text(encoding="utf-8")


def test_no_model(folder):
    with pytest.raises(TransduceError, match="elsewhere is not a folder"):
        run("elsewhere", ENGLISH)
