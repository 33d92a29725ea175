import json
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest
import torch

from builders import bytes_and_one_special, small_gpt
from exchange import LINES, train_sentencepiece, write_like_marian, write_model, write_multilingual
from inside import run
from transduce import artifact
from transduce.config import Vocabulary
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError
from transduce.interop import ctranslate2_peer
from transduce.interop.formats import read_foreign
from transduce.interop.onnx import export_onnx
from transduce.runs import export_targets
from transduce.runs.onnx_text_check import verify_text_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    # What Marian of transformers has, and CTranslate2 and ONNX as well
    write_model(folder, sine_layout="halves", output_bias=True)
    return folder


def export(model, out, to, *options):
    return run("export", model, "--to", to, "--out", out, *options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


PACKAGES = {"ctranslate2": "ctranslate2", "onnx": "onnxruntime", "huggingface": "transformers"}


@pytest.mark.parametrize("to", PACKAGES)
def test_what_was_exported_is_proved_to_be_equal(model, tmp_path, to):
    pytest.importorskip(PACKAGES[to])
    text = tmp_path / "text"
    text.write_text("\n".join(LINES[:4]) + "\n")
    done = export(model, tmp_path / "out", to, "--source", text, "--reference", text)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out'}\n"), done.stderr
    said = done.stderr.splitlines()
    assert PACKAGES[to] in said[0]
    assert any("log-probabilities" in line and "largest difference" in line for line in said)
    for search in ("greedy decoding", "beam search of 4"):
        assert any(line.startswith(f"{search}: 4 of 4 lines equal") for line in said)
    scores = [line.replace(",", "").split() for line in said if line.startswith("BLEU")]
    assert len(scores) == 2
    assert all(line[-3] == line[-1] for line in scores)
    assert names(tmp_path) == ["out", "text"]


def test_a_language_model(tmp_path):
    pytest.importorskip("transformers")
    side = bytes_and_one_special()
    vocabulary = Vocabulary(source=side.size, target=side.size, pad=0, bos=0, eos=0)
    artifact.save(small_gpt(vocabulary=vocabulary), tmp_path / "gpt", TokenizerPair(side, side))
    done = export(tmp_path / "gpt", tmp_path / "out", "huggingface")
    assert done.returncode == 0, done.stderr
    assert "logits of random texts: largest difference" in done.stderr
    pytest.importorskip("onnxruntime")
    done = export(tmp_path / "gpt", tmp_path / "onnx", "onnx")
    assert done.returncode == 0, done.stderr
    assert "onnxruntime" in done.stderr
    assert "greedy continuations: 5 of 5 equal" in done.stderr
    assert names(tmp_path / "onnx") == ["config.json", "decoder.onnx", "tokenizer.json"]
    refused = export(tmp_path / "gpt", tmp_path / "other", "ctranslate2")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "'gpt'" in refused.stderr


def test_a_language_model_that_was_damaged(tmp_path):
    pytest.importorskip("onnxruntime")
    model = small_gpt(layers=1)
    export_onnx(model, tmp_path / "out")
    with torch.no_grad():
        model.output.weight[7] += 0.01
    with pytest.raises(ArtifactError, match="logits of random texts differ"):
        verify_text_model(model, tmp_path / "out")
    assert any("greedy" in line for line in verify_text_model(model, tmp_path / "out", rounded=True).findings)


def broken(monkeypatch, change):
    """Let the export write another model than it was given."""
    target = export_targets.TARGETS["ctranslate2"]

    def write(model, *others):
        with torch.no_grad():
            other = artifact.load(monkeypatch.folder)
            change(other)
        return target.write(other, *others)

    monkeypatch.setitem(export_targets.TARGETS, "ctranslate2", replace(target, write=write))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.output.weight[40].add_(0.01),
        lambda model: model.decoder.layers[1].feed_forward.outer.bias[0].add_(0.05),
    ],
)
@pytest.mark.parametrize("options", [(), ("--quantize", "int8")])
def test_a_mismatch_is_shown_and_nothing_is_written(model, tmp_path, monkeypatch, change, options):
    pytest.importorskip("ctranslate2")
    monkeypatch.folder = model
    broken(monkeypatch, change)
    done = export(model, tmp_path / "out", "ctranslate2", *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "does not compute the same: random pair" in done.stderr
    assert "position" in done.stderr
    assert names(tmp_path) == []
    unchecked = export(model, tmp_path / "out", "ctranslate2", "--no-check")
    assert (unchecked.returncode, unchecked.stderr) == (0, "not compared\n")


def test_int8_is_compared_after_float32(model, tmp_path):
    pytest.importorskip("ctranslate2")
    done = export(model, tmp_path / "out", "ctranslate2", "--quantize", "int8")
    assert done.returncode == 0, done.stderr
    assert "float32: greedy decoding: 5 of 5 lines equal" in done.stderr
    assert "int8: log-probabilities" in done.stderr
    assert "CT2_USE_MKL=1" in done.stderr
    assert names(tmp_path) == ["out"]


def test_libraries_that_are_not_installed(model, tmp_path, monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(ctranslate2_peer, "version", version)
    monkeypatch.setitem(sys.modules, "onnx", None)
    for to, package in (("ctranslate2", "ctranslate2"), ("onnx", "onnx")):
        done = export(model, tmp_path / "out", to)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"pip install {package}" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--to", "tensorflow"), "'tensorflow'"),
        (("--to", "marian", "--quantize", "int8"), "leave out --quantize"),
        (("--to", "ctranslate2", "--quantize", "int4"), "int8_float32"),
        (("--to", "ctranslate2", "--reference", "text"), "add --source"),
        (("--to", "ctranslate2", "--source-lang", "en"), "leave out --source-lang"),
        (("--to", "onnx", "--sentencepiece", "text"), "without --argos"),
        (("--to", "ctranslate2", "--argos"), "--source-lang"),
        (("--to", "onnx", "--argos", "--source-lang", "a", "--target-lang", "b"), "--to ctranslate2"),
        (("--to", "marian"), "sine_spacing = 'paper'"),
    ],
)
def test_what_cannot_be_done_is_refused(model, tmp_path, options, named):
    done = run("export", model, "--out", tmp_path / "out", *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert named in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_a_model_with_several_languages(tmp_path, to):
    pytest.importorskip(PACKAGES[to])
    folder, out = tmp_path / "model", tmp_path / "out"
    write_multilingual(folder, sine_layout="halves")
    undecided = export(folder, out, to)
    assert (undecided.returncode, "--target-lang" in undecided.stderr) == (2, True)
    done = export(folder, out, to, "--source-lang", "a", "--target-lang", "b")
    assert done.returncode == 0, done.stderr
    assert "greedy decoding: 5 of 5 lines equal" in done.stderr
    assert ("<2b>" in done.stderr) == (to == "ctranslate2")  # which does not add it to a source


def test_a_model_with_several_languages_has_no_argos_package(tmp_path):
    pytest.importorskip("ctranslate2")
    write_multilingual(tmp_path / "model")
    options = ("--argos", "--source-lang", "a", "--target-lang", "b")
    done = export(tmp_path / "model", tmp_path / "a-b.argosmodel", "ctranslate2", *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "leave out --argos" in done.stderr


def test_a_place_in_use_is_left_alone(model, tmp_path):
    (tmp_path / "mine").write_text("here")
    for out in (tmp_path, tmp_path / "mine"):
        done = export(model, out, "ctranslate2")
        assert done.returncode == 2
        assert str(out) in done.stderr
    assert names(tmp_path) == ["mine"]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """A model, its folder, and its SentencePiece model."""
    pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("marian")
    sentencepiece = train_sentencepiece(folder / "spm.model")
    return write_like_marian(folder / "model", sentencepiece), folder / "model", sentencepiece


def assert_equal_to_the_bit(model, folder):
    again = artifact.load(folder)
    ours, theirs = dict(model.named_parameters()), dict(again.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    return again


def test_marian_and_back(marian, tmp_path):
    model, folder, sentencepiece = marian
    done = export(folder, tmp_path / "out", "marian", "--sentencepiece", sentencepiece)
    assert done.returncode == 0, done.stderr
    assert "equal to the bit" in done.stderr
    assert "not compared" in done.stderr
    assert names(tmp_path / "out") == ["model.npz", "vocab.spm"]
    assert run("import", tmp_path / "out", "--out", tmp_path / "again").returncode == 0
    again = assert_equal_to_the_bit(model, tmp_path / "again")
    assert again.config.model_copy(update={"dropout": 0.0}) == model.config.model_copy(
        update={"final_norm": False}
    )
    tokenizers = [artifact.load_tokenizer(place) for place in (folder, tmp_path / "again")]
    assert tokenizers[0].encode_source(LINES) == tokenizers[1].encode_source(LINES)


def test_marian_with_a_list_of_tokens(marian, tmp_path):
    _, folder, _ = marian
    done = export(folder, tmp_path / "out", "marian")
    assert "list of tokens" in done.stderr
    lines = (tmp_path / "out" / "vocab.yml").read_text().splitlines()
    assert {'"<unk>": 0', '"</s>": 2'} <= set(lines)
    assert not any("<pad>" in line for line in lines)


def test_an_argos_package_and_back(marian, tmp_path):
    pytest.importorskip("ctranslate2")
    model, folder, sentencepiece = marian
    package = tmp_path / "a-b.argosmodel"
    options = ("--argos", "--source-lang", "a", "--target-lang", "b", "--sentencepiece")
    done = export(folder, package, "ctranslate2", *options, sentencepiece)
    assert done.returncode == 0, done.stderr
    assert run("import", package, "--out", tmp_path / "again").returncode == 0
    assert_equal_to_the_bit(model, tmp_path / "again")
    assert artifact.load_tokenizer(tmp_path / "again").directions == [(None, None)]  # "a" is no code
    known = artifact.load_tokenizer(folder).with_direction("zh", "en")
    artifact.save(model, tmp_path / "known", known)
    done = export(tmp_path / "known", tmp_path / "known.argosmodel", "ctranslate2", "--argos", "--no-check")
    assert done.returncode == 0, done.stderr
    imported = read_foreign(tmp_path / "known.argosmodel")
    assert imported.tokenizer.directions == [("zh", "en")]
    written = export(folder, tmp_path / "written.argosmodel", "ctranslate2", *options[:-1])
    assert written.returncode == 0, written.stderr
    assert "pieces: 5 of 5 lines equal those of sentencepiece" in written.stderr
    assert run("import", tmp_path / "written.argosmodel", "--out", tmp_path / "anew").returncode == 0
    tokenizers = [artifact.load_tokenizer(place) for place in (folder, tmp_path / "anew")]
    assert tokenizers[0].encode_source(LINES) == tokenizers[1].encode_source(LINES)
    other = tmp_path / "other"
    write_model(other)
    refused = export(other, tmp_path / "c.argosmodel", "ctranslate2", *options, sentencepiece)
    assert refused.returncode == 2
    assert "was not read from" in refused.stderr
    native = export(other, tmp_path / "c.argosmodel", "ctranslate2", *options[:-1])
    assert (native.returncode, native.stderr.count("\n")) == (2, 1)
    assert "steps are not those of SentencePiece" in native.stderr
    assert "--sentencepiece" in native.stderr
    misnamed = export(folder, tmp_path / "c.zip", "ctranslate2", *options, sentencepiece)
    assert ".argosmodel" in misnamed.stderr
    packages = ["a-b.argosmodel", "known.argosmodel", "written.argosmodel"]
    assert names(tmp_path) == sorted([*packages, "again", "anew", "known", "other"])


def test_the_exported_tokenizer_is_compared(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("sentencepiece")
    sentencepiece, folder = train_sentencepiece(tmp_path / "spm.model"), tmp_path / "model"
    write_like_marian(folder, sentencepiece, renumbered=True, sine_spacing="paper", norm_epsilon=1e-5)
    done = export(folder, tmp_path / "out", "huggingface")
    assert done.returncode == 0, done.stderr
    assert "tokenizer: 5 of 5 lines have the same tokens" in done.stderr
    assert {"source.spm", "target.spm", "vocab.json"} <= set(names(tmp_path / "out"))
    target = export_targets.TARGETS["huggingface"]

    def write(model, tokenizer, place, *others):
        notes = target.write(model, tokenizer, place, *others)
        ids = json.loads((place / "vocab.json").read_text())
        moved = {token: (number + 1) % len(ids) for token, number in ids.items()}
        (place / "vocab.json").write_text(json.dumps(moved))
        return notes

    monkeypatch.setitem(export_targets.TARGETS, "huggingface", replace(target, write=write))
    refused = export(folder, tmp_path / "wrong", "huggingface")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "the tokenizer, line 1" in refused.stderr
    assert not (tmp_path / "wrong").exists()
