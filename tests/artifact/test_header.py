import json

import pytest
from damage import edit, refused
from safetensors.torch import load_file, save_file

from builders import small_rnn
from transduce import artifact


def test_wrong_folders(folder, tmp_path):
    assert str(tmp_path / "missing") in refused(tmp_path / "missing")
    assert str(folder / "config.json") in refused(folder / "config.json")
    refused("x" * 300)
    assert "config.json" in refused(tmp_path)


def test_a_run_folder_and_a_checkpoint_name_the_model_folder(tmp_path):
    (tmp_path / "run" / "final").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "step-1").mkdir(parents=True)
    for wrong in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "step-1"):
        assert str(tmp_path / "run" / "final") in refused(wrong)


def test_configurations_that_are_broken_or_of_another_program(folder):
    edit(folder, format=99)
    assert "99" in refused(folder)
    edit(folder, format=1, model__d_ff=10**18)
    assert "model.d_ff" in refused(folder)
    edit(folder, model__d_ff=32, model__heds=3)
    assert "'heads'" in refused(folder)
    for content in (
        b'{"architectures": ["BertModel"]}',
        b"[1, 2]",
        b"[" * 100_000,
        b'{"format": 1,',
        b"\xff",
    ):
        (folder / "config.json").write_bytes(content)
        assert str(folder / "config.json") in refused(folder)


@pytest.mark.parametrize(
    ("edits", "facts"),
    [
        ({"model__d_ff": 33}, ["model.d_ff", "33", "32"]),
        ({"model__activation": "gelu"}, ["model.activation", "'gelu'", "'relu'"]),
        ({"model__norm": "pre"}, ["model.norm", "'pre'", "'post'"]),
        ({"vocabulary__pad": 3}, ["vocabulary.pad", "3", "0"]),
        ({"model__family": "rnn"}, ["model.d_ff", "'transformer'"]),
        ({"model__family": "rn"}, ["'rn'", "'rnn'"]),
        ({"model": {"family": "rnn"}}, ["model.family", "'rnn'", "'transformer'"]),
        ({"vocabulary": None}, ["vocabulary.source", "20"]),
    ],
)
def test_an_edit_that_changes_what_the_weights_mean_is_refused(folder, edits, facts):
    edit(folder, **edits)
    message = refused(folder)
    assert [fact for fact in facts if fact not in message] == []


def test_dropout_may_be_edited(folder):
    edit(folder, model__dropout=0.4)
    assert artifact.load(folder).dropout.p == 0.4
    artifact.save(small_rnn(), folder)
    edit(folder, model__dropout=0.3)
    assert artifact.load(folder).decoder.dropout.p == 0.3


def test_a_text_model_without_a_vocabulary(folder):
    edit(folder, vocabulary=None)
    path = folder / "model.safetensors"
    save_file(load_file(path), path, {"transduce": (folder / "config.json").read_text()})
    assert "vocabulary" in refused(folder)


@pytest.mark.parametrize("metadata", [None, {"transduce": "[1]"}, {"transduce": "null"}, {"transduce": "x"}])
def test_weights_without_a_header(folder, metadata):
    path = folder / "model.safetensors"
    save_file(load_file(path), path, metadata)
    assert "model.safetensors" in refused(folder)


def test_a_header_is_read_from_a_folder_by_name(folder):
    header = artifact.read_header(str(folder))
    assert header.model_dump(exclude_none=True) == json.loads((folder / "config.json").read_text())
