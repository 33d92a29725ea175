"""Interactive translation: type a line, see its translation, alternatives and attention."""

from collections.abc import Callable

from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch import Tensor

from transduce.decoding.translation import Translation
from transduce.decoding.translator import Translator
from transduce.errors import DataError, printable

SHADES = " ░▒▓█"
_FULL_SHADE = 0.67  # weights from here on get the darkest shade
_TOKEN_WIDTH = 10  # characters of a token in the table
_INDENT = 2


def prompt() -> str:
    """Read a line from the terminal."""
    return input("> ")


def translate_interactively(
    translator: Translator, console: Console, read_line: Callable[[], str] = prompt
) -> None:
    """Translate each line that ``read_line`` returns, until it raises `EOFError` or `KeyboardInterrupt`.

    Ctrl-C during a translation cancels the translation only.
    """
    console.print("Type a line to translate; Ctrl-D or Ctrl-C quits.", style="dim", highlight=False)
    while True:
        try:
            line = read_line()
            line.encode()  # bytes that are not UTF-8 arrive as characters that cannot be encoded
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        except UnicodeError:
            console.print("This line is not UTF-8.", style="red")
            continue
        except RuntimeError as error:  # standard input was closed by the shell with `<&-`
            raise DataError("standard input is closed", "run the command in a terminal") from error
        if line.strip():
            try:
                show_translation(translator(line), translator, console)
            except KeyboardInterrupt:
                console.print("\nTranslation cancelled.", style="dim")


def show_translation(translation: Translation, translator: Translator, console: Console) -> None:
    """Print a translation, its alternatives and the attention, as wide as the terminal allows."""
    if not translation.candidates:
        console.print("(no translation)", style="dim")
        return
    best = translation.candidates[0]
    score = Text(f"  ({best.score:.2f})" if len(translation.candidates) > 1 else "", style="dim")
    console.print(Text(printable(best.text), style="bold") + score, soft_wrap=True)
    for rank, candidate in enumerate(translation.candidates[1:], 2):
        prefix = Text(f"{rank:3}. {candidate.score:6.2f}  ", style="dim")
        console.print(prefix + Text(printable(candidate.text), style="not dim"), soft_wrap=True)
    attention = translator.attention(translation) if best.ids else None
    if attention is not None:
        console.print()
        console.print(attention_view(attention, translation.source_tokens, best.tokens, console.width))
        console.print()


def attention_view(attention: Tensor, source: list[str], target: list[str], width: int) -> Group:
    """Return attention weights, (target, source), as a table of shades, one row per target token.

    If the table is too wide, return each target token with the source token it attends to most.
    """
    columns, rows = ([token[:_TOKEN_WIDTH] for token in tokens] for tokens in (source, target))
    widths = [max(map(cell_len, rows), default=0), *(max(2, cell_len(token)) for token in columns)]
    if _INDENT + sum(width + 1 for width in widths) > width:
        return _strongest(attention, source, target, width)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="cyan", pad_edge=False)
    table.add_column("", style="cyan", no_wrap=True, justify="right")
    for token in columns:
        table.add_column(Text(token), no_wrap=True)
    for token, weights in zip(rows, attention.tolist(), strict=True):
        table.add_row(Text(" " * _INDENT + token), *(_shade(weight) * 2 for weight in weights))
    return Group(Text("attention (rows: target, columns: source)", style="dim"), table)


def _shade(weight: float) -> str:
    return SHADES[min(len(SHADES) - 1, round(weight / _FULL_SHADE * (len(SHADES) - 1)))]


def _strongest(attention: Tensor, source: list[str], target: list[str], width: int) -> Group:
    """Return the most attended source token of each target token, in as many columns as fit."""
    indices = attention.argmax(dim=-1).tolist()
    cells = [f"{token} ← {source[index]}" for token, index in zip(target, indices, strict=True)]
    cell_width = max(map(cell_len, cells), default=0) + 2
    columns = max(1, (width - _INDENT) // cell_width)
    height = -(-len(cells) // columns)
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for row in range(height):
        grid.add_row(*(Text(cell, overflow="fold") for cell in cells[row::height]))
    caption = Text("each target token ← the source token with the most attention", style="dim")
    return Group(caption, Padding(grid, (0, 0, 0, _INDENT)))
