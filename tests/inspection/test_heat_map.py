import builtins
from dataclasses import replace
from itertools import pairwise

import matplotlib as mpl
import pytest
import torch
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.image import imread
from subjects import ARABIC, ENGLISH, GERMAN, KOREAN, inspection_of, rnn_inspection

from transduce.errors import ConfigError, DependencyError, TransduceError
from transduce.inspection import heat_map
from transduce.inspection.color_scale import LEVELS, color_scale, scale_top
from transduce.inspection.heat_map import fonts_for, write_heat_map


def test_an_image_is_written(tmp_path):
    write_heat_map(inspection_of("a $ b $ c", "x_1 ^ y"), tmp_path / "map.png", layer=1)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_the_image_shows_the_requested_layer(tmp_path, monkeypatch):
    found, drawn = inspection_of(), []
    monkeypatch.setattr(heat_map, "_draw", lambda _, weights, *rest: drawn.append((weights, *rest)))
    write_heat_map(found, tmp_path / "map.png", layer=1)
    write_heat_map(found, tmp_path / "map.png")
    (first, rows, columns, title), (last, *_) = drawn
    assert first.equal(found.encoder_decoder[0].mean(0))
    assert last.equal(found.encoder_decoder[-1].mean(0))
    assert (rows, columns) == (found.target_tokens, found.source_tokens)
    assert "layer 1" in title


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    saved, real = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **b: (saved.append(figure), real(figure, *a, **b))
    )
    return saved


def test_letters_stand_upright(tmp_path, figures):
    names = ["a", "bc", "long", "</s>"]
    weights = torch.full((1, 1, 4, 4), 0.25)
    found = replace(inspection_of(), source_tokens=names, target_tokens=names, encoder_decoder=weights)
    write_heat_map(found, tmp_path / "map.png")
    labels = figures[0].axes[0].get_xticklabels()
    assert {label.get_text(): label.get_rotation() for label in labels} == {
        "a": 0,
        "bc": 0,
        "long": 90,
        "</s>": 90,
    }


def test_the_colors_are_those_of_the_page(tmp_path, figures):
    weights = torch.full((1, 1, 20, 20), 0.03)
    weights[0, 0, 3, 4] = 0.9
    names = [f"t{place}" for place in range(20)]
    found = replace(inspection_of(), source_tokens=names, target_tokens=names, encoder_decoder=weights)
    write_heat_map(found, tmp_path / "map.png")
    (image,) = figures[0].axes[0].get_images()
    assert image.get_clim() == (0, scale_top(weights[0, 0])) == (0, 0.05)
    shown = image.cmap(range(LEVELS), bytes=True)[:, :3].tolist()
    assert [tuple(color) for color in shown] == color_scale()
    assert image.colorbar.extend == "max"


@pytest.mark.parametrize("times", [1, 5])
def test_all_labels_are_inside_the_image(tmp_path, monkeypatch, times):
    saved, real = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **b: (saved.append((figure, b)), real(figure, *a, **b))
    )
    found = inspection_of(f"{ENGLISH} " * times, f"{GERMAN} " * times)
    write_heat_map(found, tmp_path / "map.png")
    ((figure, options),) = saved
    whole = figure.bbox
    if options.get("bbox_inches") == "tight":
        inches = figure.get_tightbbox().padded(options["pad_inches"])
        whole = inches.transformed(figure.dpi_scale_trans)
    picture = imread(tmp_path / "map.png")
    assert picture.shape[:2] == pytest.approx((whole.height, whole.width), abs=2)
    axes = figure.axes[0]
    names = [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label, axes.title]
    assert len(names) == len(found.source_tokens) + len(found.target_tokens) + 3
    for name in names:
        box = name.get_window_extent()
        assert whole.x0 < box.x0 < box.x1 < whole.x1, name
        assert whole.y0 < box.y0 < box.y1 < whole.y1, name
    edges = (picture[0], picture[-1], picture[:, 0], picture[:, -1])
    assert all((edge == 1).all() for edge in edges)  # the border is white, so nothing is cut off


def test_the_size_of_the_image_is_limited(tmp_path, monkeypatch):
    saved, real = [], Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda figure, *a, **b: (saved.append(figure), real(figure, *a, **b)),
    )
    monkeypatch.setattr(heat_map, "DPI", 50)
    found, rows, columns = inspection_of(), 20, 400
    names = [f"a{place}" for place in range(columns)]
    weights = torch.full((1, 1, rows, columns), 1 / columns)
    found = replace(found, source_tokens=names, target_tokens=names[:rows], encoder_decoder=weights)
    write_heat_map(found, tmp_path / "map.png")
    (figure,) = saved
    assert tuple(figure.get_size_inches()) == pytest.approx((heat_map.MAX_SIZE, heat_map.CELL * rows))
    shown = figure.axes[0].get_xticklabels()
    assert [name.get_text() for name in shown] == names[:: int(shown[1].get_text()[1:])]
    assert len(shown) > 100
    boxes = [name.get_window_extent() for name in shown]
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
    assert [name.get_text() for name in figure.axes[0].get_yticklabels()] == names[:rows]


@pytest.mark.parametrize("text", [KOREAN, ARABIC])
def test_installed_fonts_have_the_characters(tmp_path, text, monkeypatch):
    warnings = []
    chosen = fonts_for(text, warnings.append)
    if warnings:
        pytest.skip(warnings[0])
    files = [font_manager.findfont(name, fallback_to_default=False) for name in chosen]
    available = set().union(*(font_manager.get_font(file).get_charmap() for file in files))
    assert {ord(character) for character in text if not character.isspace()} <= available
    used = []
    monkeypatch.setattr(heat_map, "_draw", lambda *_: used.extend(mpl.rcParams["font.family"]))
    write_heat_map(inspection_of(text), tmp_path / "map.png")
    assert set(chosen) <= set(used)


def test_characters_without_a_font_are_named():
    warnings = []
    fonts_for("a\U000f1234", warnings.append)
    (warning,) = warnings
    assert "\U000f1234" in warning


def test_images_that_cannot_be_drawn(tmp_path):
    with pytest.raises(ConfigError, match=r"--layer 3 .* 1 to 2"):
        write_heat_map(inspection_of(), tmp_path / "map.png", layer=3)
    with pytest.raises(ConfigError, match=r"no attention .*--png"):
        write_heat_map(rnn_inspection("none"), tmp_path / "map.png")
    with pytest.raises(TransduceError, match=r"cannot write .*map\.png"):
        write_heat_map(inspection_of(), tmp_path / "no" / "map.png")


def test_without_matplotlib(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError
        return real(name, *rest)

    found = inspection_of()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyError, match="matplotlib"):
        write_heat_map(found, tmp_path / "map.png")
