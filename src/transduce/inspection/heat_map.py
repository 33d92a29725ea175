"""Encoder-decoder attention as a heat map, in PNG format."""

import io
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from transduce.errors import ConfigError, require_matplotlib
from transduce.inspection.color_scale import color_scale, scale_top
from transduce.inspection.inspection import Inspection
from transduce.inspection.output_files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 0.34  # inches
MAX_SIZE = 25  # inches: with more than about 70 tokens, cells become smaller instead
DPI = 120
UPRIGHT = 2  # characters: longer tokens are turned
LARGE, SMALL = 10, 4  # points: labels shrink with their cells; below SMALL, some are left out
# Fonts in order of preference; each provides the characters that those before it lack.
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK KR",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans KR",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "NanumGothic",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans",
    "Yu Gothic",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Segoe UI",
    "Geeza Pro",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
)


def write_heat_map(
    inspection: Inspection,
    path: str | Path,
    layer: int | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> None:
    """Draw the weights of a layer, by default the last one, averaged over its heads."""
    require_matplotlib("heat maps")
    from matplotlib.figure import Figure

    count = len(inspection.encoder_decoder)
    if not count:
        raise ConfigError("the model has no attention weights to draw", "leave out --png")
    layer = count if layer is None else layer
    if not 1 <= layer <= count:
        raise ConfigError(f"--layer {layer} does not exist", f"choose a layer from 1 to {count}")
    rows, columns = inspection.target_tokens, inspection.source_tokens
    with drawing("".join([*rows, *columns]), warn):
        size = min(MAX_SIZE, CELL * len(columns)), min(MAX_SIZE, CELL * len(rows))
        figure = Figure(figsize=size, dpi=DPI)
        weights = inspection.encoder_decoder[layer - 1].mean(dim=0)
        _draw(figure, weights, rows, columns, f"Encoder-decoder attention, layer {layer}, mean of heads")
        file = io.BytesIO()
        # The cells fill the figure; a tight bounding box includes the labels around it.
        figure.savefig(file, format="png", bbox_inches="tight", pad_inches=0.15)
    write(path, file.getvalue())


def _draw(figure: "Figure", weights: Tensor, rows: list[str], columns: list[str], title: str) -> None:
    from matplotlib.colors import ListedColormap

    axes = figure.add_axes((0, 0, 1, 1))
    colors = ListedColormap([tuple(value / 255 for value in color) for color in color_scale()])
    top = scale_top(weights)
    image = axes.imshow(weights.numpy(), cmap=colors, vmin=0, vmax=top, aspect="auto")
    width, height = figure.get_size_inches()
    _label(axes.set_xticks, columns, width, rotation=90)
    _label(axes.set_yticks, rows, height, rotation=0)
    axes.xaxis.tick_top()
    for label in axes.get_xticklabels():
        characters = len(label.get_text().replace(r"\$", "$"))
        if characters <= UPRIGHT and characters * label.get_fontsize() <= 72 * width / len(columns):
            label.set_rotation(0)
    axes.xaxis.set_label_position("top")
    axes.set(xlabel="source token", ylabel="target token")
    axes.set_title(title, fontsize="medium", pad=12)
    tall = min(1, 4 / height)
    beside = axes.inset_axes((1 + 0.2 / width, 1 - tall, 0.15 / width, tall))
    is_cut = bool(weights.max() > top)  # the arrow says that the darkest color is also that of larger weights
    figure.colorbar(image, cax=beside, label="weight", extend="max" if is_cut else "neither")


def _label(set_ticks: Callable[..., object], tokens: list[str], inches: float, rotation: int) -> None:
    """Label a side with as many tokens as there is room for."""
    room = 72 * inches / len(tokens)  # points
    size = min(LARGE, max(SMALL, room / 1.25))
    indices = range(0, len(tokens), math.ceil(1.2 * size / room))
    # An unescaped $ would start a formula.
    labels = [tokens[index].replace("$", r"\$") for index in indices]
    set_ticks(indices, labels, rotation=rotation, fontsize=size)


@contextmanager
def drawing(text: str, warn: Callable[[str], object]) -> Iterator[None]:
    """Draw with matplotlib's default settings, whatever the user's matplotlibrc, in fonts for this text."""
    import matplotlib as mpl

    with mpl.rc_context(mpl.rcParamsDefault), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        mpl.rcParams["font.family"] = fonts_for(text, warn)
        yield


def fonts_for(text: str, warn: Callable[[str], object]) -> list[str]:
    """Return installed fonts that together have these characters; warn of characters that none has."""
    from matplotlib import font_manager

    wanted = {character for character in text if not character.isspace()}
    chosen, missing = _choose(wanted)
    if missing:  # matplotlib's cached list may lack fonts that were installed later
        known = {entry.fname for entry in font_manager.fontManager.ttflist}
        for path in sorted(set(font_manager.findSystemFonts()) - known):
            try:
                font_manager.fontManager.addfont(path)
            except (OSError, RuntimeError):  # a font format that matplotlib cannot read
                continue
        chosen, missing = _choose(wanted)
    if missing:
        warn(f"no installed font has the characters {' '.join(sorted(missing)[:10])}; install the Noto fonts")
    return chosen


def _choose(wanted: set[str]) -> tuple[list[str], set[str]]:
    from matplotlib import font_manager

    files = {entry.name: entry.fname for entry in reversed(font_manager.fontManager.ttflist)}
    chosen, missing = ["DejaVu Sans"], set(wanted)
    for name in FONTS:
        if name in files and missing:
            characters = font_manager.get_font(files[name]).get_charmap()
            if provided := {character for character in missing if ord(character) in characters}:
                missing -= provided
                chosen += [name] if name not in chosen else []
    return chosen, missing
