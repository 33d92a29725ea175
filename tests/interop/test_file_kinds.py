"""Files that are not the model they should be, in words that users know."""

import gzip

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from transduce.errors import ArtifactError
from transduce.interop.ctranslate2_file import read_ctranslate2
from transduce.interop.file_kinds import kind_of
from transduce.interop.marian_file import read_marian
from transduce.interop.torch_pickle import read_torch

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
INTERNALS = ("opcode", "codec", "unpack", "KeyError", "0x")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "empty"),
        (POINTER, "Git LFS"),
        (b"<!DOCTYPE html>\n<html>", "web page"),
        (gzip.compress(b"x", mtime=0), "gzip"),
        ("Guten Tag, süße Welt\n".encode() * 60, "text"),
    ],
)
@pytest.mark.parametrize("read", [read_torch, read_ctranslate2, read_marian])
def test_what_a_file_is_instead(read, content, name, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"model\.bin is an? .*{name}.*, not a"):
        read(path)


def test_safetensors_and_arrays(tmp_path):
    path = tmp_path / "weights.pt"
    save_file({"a": torch.ones(3)}, path)
    assert "safetensors" in kind_of(path).name
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    assert "NumPy" in kind_of(path).name
    torch.save({"a": torch.ones(3)}, path)
    assert kind_of(path) is None
    assert kind_of(tmp_path) is None
    assert kind_of(tmp_path / "nowhere") is None


@pytest.mark.parametrize("read", [read_torch, read_ctranslate2, read_marian])
def test_no_internals_of_python_are_shown(read, tmp_path):
    path = tmp_path / "model.bin"
    beginnings = [
        b"nonsense\xff\0",
        b"\x80\x02X\x10\0\0\0ab",
        b"\x80\x02c\xff\n\xff\n.",
        b"\x80\x02}q\0(",
    ]
    beginnings += [
        b"\x06\0\0\0\x04\0\xff\xff\xff\0\0",
        b"\x01" + bytes(7) + b"\x01" + bytes(7) + b"\xff" * 40,
    ]
    for content in beginnings:
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"model\.bin is damaged, or not") as caught:
            read(path)
        assert not [word for word in INTERNALS if word in str(caught.value)], str(caught.value)


def test_the_count_of_missing_bytes(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"\x06\0\0\0" + b"\x10\0" + b"Transfor")  # half of a name of 16 bytes
    with pytest.raises(ArtifactError, match=r"at least 8 bytes are missing"):
        read_ctranslate2(path)


def test_another_archive(tmp_path):
    np.savez(tmp_path / "weights.npz", a=np.ones(3))
    with pytest.raises(ArtifactError, match="another archive"):
        read_torch(tmp_path / "weights.npz")
