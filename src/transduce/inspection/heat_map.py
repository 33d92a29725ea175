"""The classic picture: encoder-decoder attention as a heat map, as PNG."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from transduce.errors import ConfigError, require_matplotlib
from transduce.inspection.files import write
from transduce.inspection.inspection import Inspection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 0.34  # inches on a side
# In this order, as far as they are installed; each fills in what those before it lack.
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
    """Draw a layer's weights (the last one's, if none is named), averaged over heads."""
    require_matplotlib("heat maps")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    count = len(inspection.encoder_decoder)
    if not count:
        raise ConfigError("the model has no attention to draw", "leave the picture out")
    layer = count if layer is None else layer
    if not 1 <= layer <= count:
        raise ConfigError(f"there is no layer {layer}", f"choose one of 1 to {count}")
    rows, columns = inspection.said_tokens, inspection.source_tokens
    # The same pictures for everyone, whatever their matplotlibrc.
    with mpl.rc_context(mpl.rcParamsDefault), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        mpl.rcParams["font.family"] = fonts_for("".join([*rows, *columns]), warn)
        figure = Figure(figsize=(CELL * len(columns), CELL * len(rows)), dpi=120)
        weights = inspection.encoder_decoder[layer - 1].mean(dim=0)
        _draw(figure, weights, rows, columns, f"Encoder-decoder attention, layer {layer}, mean of heads")
        file = io.BytesIO()
        # The cells are as large as the figure; what stands around them is taken in here.
        figure.savefig(file, format="png", bbox_inches="tight", pad_inches=0.15)
    write(path, file.getvalue())


def _draw(figure: "Figure", weights: Tensor, rows: list[str], columns: list[str], title: str) -> None:
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(weights.numpy(), cmap="viridis", vmin=0, vmax=1)
    # A $ would begin a formula.
    axes.set_xticks(range(len(columns)), [token.replace("$", r"\$") for token in columns], rotation=90)
    axes.set_yticks(range(len(rows)), [token.replace("$", r"\$") for token in rows])
    axes.xaxis.tick_top()
    axes.set(ylabel="said")
    axes.set_title(title, fontsize="medium", pad=12)
    width, height = figure.get_size_inches()
    tall = min(1, 4 / height)
    beside = axes.inset_axes((1 + 0.2 / width, 1 - tall, 0.15 / width, tall))
    figure.colorbar(image, cax=beside, label="weight")


def fonts_for(text: str, warn: Callable[[str], object]) -> list[str]:
    """Installed fonts that have these characters between them; says which characters none of them has."""
    from matplotlib import font_manager

    wanted = {character for character in text if not character.isspace()}
    chosen, missing = _choose(wanted)
    if missing:  # fonts that came after matplotlib made its list
        known = {entry.fname for entry in font_manager.fontManager.ttflist}
        for path in sorted(set(font_manager.findSystemFonts()) - known):
            try:
                font_manager.fontManager.addfont(path)
            except (OSError, RuntimeError):  # a kind of font it cannot read
                continue
        chosen, missing = _choose(wanted)
    if missing:
        warn(f"no installed font has {' '.join(sorted(missing)[:10])}: install the Noto fonts, for one")
    return chosen


def _choose(wanted: set[str]) -> tuple[list[str], set[str]]:
    from matplotlib import font_manager

    files = {entry.name: entry.fname for entry in reversed(font_manager.fontManager.ttflist)}
    chosen, missing = ["DejaVu Sans"], set(wanted)
    for name in FONTS:
        if name in files and missing:
            has = font_manager.get_font(files[name]).get_charmap()
            if found := {character for character in missing if ord(character) in has}:
                missing -= found
                chosen += [name] if name not in chosen else []
    return chosen, missing
