"""The classic picture: encoder-decoder attention as a heat map, as PNG."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from transduce.errors import ConfigError, TransduceError, require_matplotlib
from transduce.inspection.inspection import Inspection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    layer = count if layer is None else layer
    if not 1 <= layer <= count:
        raise ConfigError(f"there is no layer {layer}", f"choose one of 1 to {count}")
    rows, columns = inspection.said_tokens, inspection.source_tokens
    # The same pictures for everyone, whatever their matplotlibrc.
    with mpl.rc_context(mpl.rcParamsDefault), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        mpl.rcParams["font.family"] = fonts_for("".join([*rows, *columns]), warn)
        size = (2.5 + 0.36 * len(columns), 2.0 + 0.34 * len(rows))
        figure = Figure(figsize=size, layout="constrained", dpi=120)
        weights = inspection.encoder_decoder[layer - 1].mean(dim=0)
        _draw(figure, weights, rows, columns, f"Encoder-decoder attention, layer {layer}, mean of heads")
        try:
            figure.savefig(path, format="png")
        except OSError as error:
            raise TransduceError(f"cannot write {path}: {error.strerror}", "choose another place") from error


def _draw(figure: "Figure", weights: Tensor, rows: list[str], columns: list[str], title: str) -> None:
    axes = figure.subplots()
    image = axes.imshow(weights.numpy(), cmap="viridis", vmin=0, vmax=1)
    # A $ would begin a formula.
    axes.set_xticks(range(len(columns)), [token.replace("$", r"\$") for token in columns], rotation=90)
    axes.set_yticks(range(len(rows)), [token.replace("$", r"\$") for token in rows])
    axes.xaxis.tick_top()
    axes.set(ylabel="said")
    figure.suptitle(title, fontsize="medium")
    figure.colorbar(image, ax=axes, label="weight", fraction=0.05, shrink=0.8)


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
