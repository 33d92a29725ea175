"""Attention over an image: what is written, and where."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
import torch

from transduce import artifact
from transduce.config import ViTConfig
from transduce.errors import ConfigError
from transduce.inspection import image_command as images
from transduce.inspection.heat_map import fonts_for
from transduce.inspection.image_attention import ImageAttention
from transduce.inspection.image_command import draw, inspect_file
from transduce.models.build import build

PIL = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")

SIZES = {"image_size": 8, "patch_size": 4, "channels": 1, "layers": 1, "d_model": 8, "d_ff": 8, "heads": 2}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    artifact.save(build(ViTConfig(classes=["cat", "dog"], **SIZES), seed=0), tmp_path / "model")
    PIL.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(tmp_path / "cat.png")
    (tmp_path / "notes.txt").write_text("my notes")
    (tmp_path / "link.png").symlink_to(tmp_path / "cat.png")
    return tmp_path


def inspect(folder, png=None, out=None):
    paths = [None if name is None else folder / name for name in (png, out)]
    return [path.name for path in inspect_file(folder / "model", folder / "cat.png", *paths)]


def test_pages_and_pictures_are_written_over(folder):
    for _ in range(2):
        assert inspect(folder, "a.png", "a.html") == ["a.html", "a.png"]
        assert inspect(folder) == ["attention.png"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"png": "cat.png"}, r"cat.png is both what is read and what is written; choose another file$"),
        ({"png": "link.png"}, r"link.png is both what is read and what is written"),
        ({"out": "cat.png"}, r"cat.png is both what is read and what is written"),
        ({"png": "x", "out": "x"}, r"both the page and the picture would be .*x; choose another --png$"),
        ({"png": "notes.txt"}, r"notes.txt is there already, and is no picture; choose another file$"),
        ({"out": "notes.txt"}, r"notes.txt is there already, and is no page; choose another file$"),
    ],
)
def test_nothing_else_is(folder, files, said):
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(ConfigError, match=said):
        inspect(folder, **files)
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def guessing(name):
    maps = torch.rand(1, 2, 2, 2)
    return ImageAttention(torch.zeros(8, 8, 1, dtype=torch.uint8), maps, maps[0, 0], name, 0.5)


@pytest.mark.parametrize("name", ["고양이", "a\U000f1234"])
def test_the_picture_names_classes_in_every_script(name, monkeypatch):
    fonts, said = [], []
    fonts_for(name, fonts.append)
    used = []
    monkeypatch.setattr(images, "_png", lambda _: used.extend(mpl.rcParams["font.family"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(guessing(name), said.append)
    assert said == fonts  # what no font has, and nothing in Python's words
    assert used == fonts_for(name, lambda _: None)
