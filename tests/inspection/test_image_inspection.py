"""The output files of ``transduce vision inspect``."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
import torch

from transduce import artifact
from transduce.config import ViTConfig
from transduce.errors import ConfigError
from transduce.inspection import image_heat_map
from transduce.inspection.heat_map import fonts_for
from transduce.inspection.image_attention import ImageAttention, attention_rollout, inspect_image
from transduce.inspection.image_command import inspect_file
from transduce.inspection.image_heat_map import draw
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


def test_pages_and_images_are_overwritten(folder):
    for _ in range(2):
        assert inspect(folder, "a.png", "a.html") == ["a.html", "a.png"]
        assert inspect(folder) == ["attention.png"]


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        ({"png": "cat.png"}, "cat.png is an input"),
        ({"png": "link.png"}, "link.png is an input"),
        ({"out": "cat.png"}, "cat.png is an input"),
        ({"png": "x", "out": "x"}, "--out and --png are both .*x"),
        ({"png": "notes.txt"}, "notes.txt exists and is not a PNG"),
        ({"out": "notes.txt"}, "notes.txt exists and is not a HTML"),
    ],
)
def test_other_files_are_not_overwritten(folder, files, facts):
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(ConfigError, match=facts):
        inspect(folder, **files)
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def predicting(name):
    maps = torch.rand(1, 2, 2, 2)
    return ImageAttention(torch.zeros(8, 8, 1, dtype=torch.uint8), maps, maps[0, 0], name, 0.5)


def test_repr_is_short_and_has_no_tensors():
    text = repr(predicting("cat"))
    assert "'cat'" in text
    assert "1×2×2×2" in text
    assert "tensor" not in text


@pytest.mark.parametrize("name", ["고양이", "a\U000f1234"])
def test_class_names_in_every_script_are_drawn(name, monkeypatch):
    expected, warned = [], []
    fonts_for(name, expected.append)
    used = []
    monkeypatch.setattr(image_heat_map, "_png", lambda _: used.extend(mpl.rcParams["font.family"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(predicting(name), warned.append)
    assert warned == expected  # characters without a font, and no warning of matplotlib's
    assert used == fonts_for(name, lambda _: None)


def test_rollout_and_maps_equal_their_definitions():
    weights = torch.rand(3, 2, 5, 5).softmax(dim=-1)
    flow = attention_rollout(weights)
    torch.testing.assert_close(flow.sum(dim=-1), torch.ones(5))
    step = [0.5 * layer.mean(dim=0) + 0.5 * torch.eye(5) for layer in weights]
    torch.testing.assert_close(flow, step[2] @ step[1] @ step[0])
    for pooling in ("class", "mean"):
        sizes = {"layers": 2, "d_model": 8, "d_ff": 8, "heads": 2, "pooling": pooling}
        model = build(ViTConfig(image_size=[4, 6], patch_size=2, channels=1, classes=3, **sizes), seed=0)
        pixels = torch.randint(0, 256, (4, 6, 1), dtype=torch.uint8)
        found = inspect_image(model, pixels)
        assert found.maps.shape == (2, 2, 2, 3)
        assert model.training
        weights = model.eval().attention(pixels[None])[1][0, 1]
        expected = weights[0, 1:] if pooling == "class" else weights.mean(dim=0)
        torch.testing.assert_close(found.maps[1, 1].flatten(), expected)
