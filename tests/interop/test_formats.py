"""Which format a file or folder is in, and what is said if it is in none, or in several."""

import json
import shutil
import struct
from typing import get_args

import pytest
import torch

from transduce.cli.export_options import To
from transduce.cli.import_model import FormatName
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.formats import FORMATS, find_format, read_foreign
from transduce.interop.marian_import import read as read_marian_model
from transduce.runs.export_targets import TARGETS

CTRANSLATE2 = struct.pack("<IH", 6, 16) + b"TransformerSpec\0" + struct.pack("<I", 7)
MARIAN = struct.pack("<QQ", 1, 0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def test_the_command_line_lists_all_formats():
    assert set(get_args(FormatName)) == {each.name for each in FORMATS}
    assert set(get_args(get_args(To)[0])) == set(TARGETS)


def test_a_folder_with_two_formats_is_refused_and_both_are_named(folder):
    (folder / "model.bin").write_bytes(CTRANSLATE2)
    assert find_format(folder).name == "ctranslate2"
    (folder / "config.json").write_text(json.dumps({"model_type": "marian"}))
    with pytest.raises(ArtifactError, match=r"ctranslate2, huggingface.*--format ctranslate2"):
        find_format(folder)


def test_a_folder_of_sentence_transformers_is_one_of_transformers_too(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "modules.json").write_text("[]")
    assert find_format(folder).name == "sentence-transformers"


@pytest.mark.parametrize(("content", "name"), [(CTRANSLATE2, "ctranslate2"), (MARIAN, "marian")])
def test_files_of_the_same_name_are_told_apart_by_their_content(content, name, folder):
    (folder / "model.bin").write_bytes(content)
    assert find_format(folder).name == name
    assert find_format(folder / "model.bin").name == name


def test_other_files_beside_a_checkpoint_of_fairseq_are_no_checkpoints(folder):
    for name in ("dict.a.txt", "dict.b.txt", "checkpoint_best.pt", "notes.bin"):
        (folder / name).write_bytes(b"\xff\x00 1\n")
    with pytest.raises(ArtifactError, match=r"notes\.bin"):
        find_format(folder / "notes.bin")
    assert find_format(folder / "checkpoint_best.pt").name == "fairseq"


def test_what_is_not_recognised_is_one_short_line(folder):
    with pytest.raises(ArtifactError, match="empty"):
        find_format(folder)
    torch.save({"weight": torch.ones(1)}, folder / "weights.pt")
    for path in (folder, folder / "weights.pt"):
        with pytest.raises(ArtifactError, match=r"--format \(ctranslate2, marian.*--map") as caught:
            find_format(path)
        assert len(str(caught.value)) < 250 + len(str(path))
    (folder / "page.bin").write_text("<!DOCTYPE html><html>404</html>")
    with pytest.raises(ArtifactError, match="a web page"):
        find_format(folder / "page.bin")


def test_a_wrong_name_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigError, match=r"'mariam'.*marian"):
        read_foreign(tmp_path / "nowhere", "mariam")


def test_a_folder_without_a_model_of_marian(folder):
    with pytest.raises(ArtifactError, match=r"no model\*\.npz"):
        read_marian_model(folder)


def test_a_real_marian_model_named_like_one_of_ctranslate2(shared, folder):
    theirs = shared / "weights" / "firefox-en-pt"
    shutil.copy(next(theirs.glob("model*.bin")), folder / "model.bin")
    shutil.copy(next(theirs.glob("*.spm")), folder)
    imported = read_foreign(folder)
    assert imported.model.config.decoder == "ssru"
    assert any("dropout" in note for note in imported.notes)
