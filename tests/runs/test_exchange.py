"""``transduce import`` and its relatives: what they refuse, before any work is done."""

import numpy as np
import pytest

from exchange import LINES, write_model
from inside import run
from interop.foreign import marian


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("\n".join(LINES) + "\n")
    return path


def refused(*words, cwd=None):
    """Return the one line of a command that ends with an error."""
    done = run(*words, cwd=cwd)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stdout + done.stderr
    return done.stderr


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_no_command_replaces_a_folder(model, tmp_path):
    used = tmp_path / "used"
    write_model(used)
    before = content(used)
    for words in (
        ("import", tmp_path / "nowhere"),
        ("quantize", model),
        ("export", model, "--to", "onnx"),
        ("pull", model),
        ("merge", tmp_path / "nowhere"),
    ):
        assert "not empty" in refused(*words, "--out", used)
    assert content(used) == before


def test_places_that_cannot_be_written(model, tmp_path):
    (tmp_path / "file").write_text("x")
    for words in (("quantize", model, "--out"), ("push", model), ("pull", model, "--out")):
        said = refused(*words, tmp_path / "file" / "model")
        assert "a part of this one is a file" in said
        assert "space" not in said
        assert "not a folder" in refused(*words, tmp_path / "file")


def test_push_onto_itself(model):
    before = content(model)
    assert "the model itself" in refused("push", model, model)
    assert "the model itself" in refused("push", model, f"{model}/../model/")
    assert content(model) == before


def test_merge_names_what_is_missing(model, tmp_path):
    assert "nosuch does not exist" in refused("merge", tmp_path / "nosuch", "--out", tmp_path / "out")
    assert "not an adapter folder" in refused("merge", model, "--out", tmp_path / "out")


def test_the_text_of_quantize_is_read_first(model, text, tmp_path):
    (tmp_path / "none").write_text("")
    (tmp_path / "short").write_text("a\n")
    out = ("--out", tmp_path / "out")
    assert "no lines" in refused("quantize", model, *out, "--source", tmp_path / "none")
    assert "nowhere" in refused("quantize", model, *out, "--source", tmp_path / "nowhere")
    words = ("--source", text, "--reference")
    assert "nowhere" in refused("quantize", model, *out, *words, tmp_path / "nowhere")
    assert "100 lines" in refused("quantize", model, *out, *words, tmp_path / "short")
    assert not (tmp_path / "out").exists()


def test_a_mapping_file_is_for_one_file(tmp_path):
    (tmp_path / "names.toml").write_text("")
    (tmp_path / "folder").mkdir()
    out = ("--out", tmp_path / "out", "--map", tmp_path / "names.toml")
    assert "is a folder, but --map" in refused("import", tmp_path / "folder", *out)
    assert "--format has no effect" in refused("import", tmp_path / "folder", *out, "--format", "marian")


def test_choices_are_listed(tmp_path):
    for words in (("import", "x", "--format", "no"), ("export", "x", "--to", "no")):
        said = refused(*words, "--out", tmp_path / "out")
        assert "huggingface" in said
        assert "ctranslate2" in run(words[0], "--help").stdout


def test_resume_where_there_is_no_run(model, text, tmp_path):
    assert "holds no run to resume" in refused("train", "--resume", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    pair = ("--source", text, "--target", text)
    for words in ((), pair):
        assert "not a run folder" in refused("train", "--resume", "--out", model, *words)


def test_new_tokens_and_an_adapter(model, text, tmp_path):
    words = ("--source", text, "--target", text, "--from", model, "--extend-vocabulary", "--adapter", 4)
    said = refused("train", *words, "--out", tmp_path / "run")
    assert "--extend-vocabulary" in said
    assert "--adapter" in said
    assert not (tmp_path / "run").exists()


def test_a_model_of_another_toolkit_is_not_trained_from(text, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "marian"}')
    words = ("--source", text, "--target", text, "--from", tmp_path / "theirs")
    assert "transduce import" in refused("train", *words, "--out", tmp_path / "run")


def test_what_the_file_says_about_dropout(tmp_path):
    spm = pytest.importorskip("sentencepiece")
    from exchange import train_sentencepiece
    from transduce.runs.exchange import import_model

    pieces = train_sentencepiece(tmp_path / "vocab")
    size = spm.SentencePieceProcessor(model_file=str(pieces)).get_piece_size()
    shape = marian.Shape()
    marian.write(tmp_path / "model.npz", shape, marian.parameters(shape, size))
    report = import_model(tmp_path / "model.npz", tmp_path / "first")
    assert report.imported.model.config.dropout == 0.1
    assert any("dropout" in note for note in report.imported.notes)
    arrays = dict(np.load(tmp_path / "model.npz"))
    options = bytes(arrays["special:model.yml"]).rstrip(b"\0") + b"transformer-dropout: 0.3\n\0"
    np.savez(tmp_path / "model.npz", **{**arrays, "special:model.yml": np.frombuffer(options, np.int8)})
    report = import_model(tmp_path / "model.npz", tmp_path / "second")
    assert report.imported.model.config.dropout == 0.3
    assert not any("dropout" in note for note in report.imported.notes)
