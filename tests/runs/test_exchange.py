"""``transduce import`` and its relatives: what they refuse, before any work is done."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch

from builders import bytes_and_one_special, small_gpt
from exchange import LINES, write_model, write_multilingual
from inside import run
from interop.foreign import marian
from transduce import artifact
from transduce.config import Vocabulary
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError
from transduce.interop import hugging_face_peer
from transduce.interop.hugging_face_export import export_hugging_face
from transduce.interop.imported import Imported
from transduce.runs import exchange


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


def test_a_model_with_several_languages_is_tried_in_one_direction(tmp_path, monkeypatch):
    write_multilingual(tmp_path / "ours")
    model, tokenizer = artifact.load(tmp_path / "ours"), artifact.load_tokenizer(tmp_path / "ours")
    monkeypatch.setattr(exchange, "read_foreign", lambda *_: Imported(model, tokenizer))
    report = exchange.import_model("theirs", tmp_path / "model")
    assert len(report.samples) == 3
    assert [line.split()[0] for line in report.findings] == ["tried", "tried"]
    assert "into b" in report.findings[0]
    assert artifact.load_tokenizer(tmp_path / "model").special.target_language is None  # still to be chosen


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    pytest.importorskip("transformers")
    folder, side = tmp_path_factory.mktemp("gpt2"), bytes_and_one_special()
    vocabulary = Vocabulary(source=side.size, target=side.size, pad=0, bos=0, eos=0)
    export_hugging_face(small_gpt(vocabulary=vocabulary), TokenizerPair(side, side), folder)
    return folder


def test_a_language_model_is_compared(gpt2, tmp_path):
    done = run("import", gpt2, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert "compared with transformers" in done.stderr
    assert "logits of random texts: largest difference" in done.stderr
    assert "greedy continuations: 5 of 5 equal" in done.stderr


def test_what_differs_and_what_is_not_tried_is_said(gpt2, tmp_path, monkeypatch):
    imported = exchange.read_foreign(gpt2)
    with torch.no_grad():
        imported.model.output.weight[5] += 0.1
    monkeypatch.setattr(exchange, "read_foreign", lambda *_: imported)
    (warning,) = exchange.import_model(gpt2, tmp_path / "first").findings
    assert warning.startswith("warning: transformers")
    assert "logits of random texts differ" in warning

    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(hugging_face_peer, "version", version)
    (reason,) = exchange.import_model(gpt2, tmp_path / "second").findings
    assert reason.startswith("not tried: ")
    assert "not installed" in reason
    monkeypatch.setattr(exchange, "read_foreign", lambda *_: replace(imported, folder=None))
    (reason,) = exchange.import_model(gpt2, tmp_path / "third").findings
    assert reason.startswith("not tried: a gpt model")


def test_why_the_other_library_translated_nothing_is_told(model, tmp_path, monkeypatch):
    pair = artifact.load_tokenizer(model)
    imported = Imported(artifact.load(model), pair, library="Theirs", translate=lambda lines: None)

    def cannot(lines):
        raise ArtifactError("it cannot load the model: too new", "install another")

    for translate, fact in ((imported.translate, "Theirs is not installed"), (cannot, "too new")):
        found = replace(imported, translate=translate)
        monkeypatch.setattr(exchange, "read_foreign", lambda *_, found=found: found)
        report = exchange.import_model("theirs", tmp_path / fact)
        assert fact in report.findings[-1]
