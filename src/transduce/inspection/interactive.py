"""A conversation: a line typed, its translation, other ways to say it, and what attends to what."""

from collections.abc import Callable

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from transduce.decoding.translation import Translation
from transduce.decoding.translator import Translator
from transduce.errors import DataError

SHADES = " ░▒▓█"
_WIDEST = 10  # characters of a token in the picture


def converse(translator: Translator, read: Callable[[], str], console: Console) -> None:
    """Translate each line that ``read`` gives, until it raises `EOFError`."""
    console.print("type a line, see its translation; Ctrl-D ends", style="dim", highlight=False)
    while True:
        try:
            line = read()
            line.encode()  # bytes that are no text come as what cannot be encoded, or not at all
        except EOFError:
            console.print()
            return
        except UnicodeError:
            console.print("that is not UTF-8", style="red")
            continue
        except RuntimeError as error:  # as `<&-` leaves it
            raise DataError("standard input is closed", "leave it open to type a line") from error
        if line.strip():
            found = translator(line)
            show(found, translator, console)


def show(found: Translation, translator: Translator, console: Console) -> None:
    """One translation, as it fits the terminal."""
    if not found.candidates:
        console.print("(nothing)", style="dim")
        return
    best, *others = found.candidates
    console.print(Text(best.text, style="bold"), Text(f"  {best.score:.2f}", style="dim"), soft_wrap=True)
    for one in others:
        console.print(Text(f"  {one.score:6.2f}  ", style="dim"), Text(one.text), sep="", soft_wrap=True)
    attention = translator.attention(found) if best.ids else None
    if attention is not None:
        console.print(picture(attention, found.source_tokens, best.tokens, console.width))


def picture(attention: Tensor, source: list[str], target: list[str], width: int) -> Table | Text:
    """Attention (target, source) in shades, a row a target token; too wide for that, the strongest alone."""
    columns, rows = ([token[:_WIDEST] for token in tokens] for tokens in (source, target))
    widths = [max(cell_len(token) for token in rows) + 1, *(max(2, cell_len(token)) for token in columns)]
    if sum(widths) + len(widths) + 1 > width:  # with lines between them, and at the edges
        strongest = attention.argmax(dim=-1).tolist()
        pairs = (f"{said} ← {source[place]}" for said, place in zip(target, strongest, strict=True))
        return Text("   ".join(pairs), style="dim")
    table = Table(box=box.MINIMAL, padding=(0, 0), header_style="cyan", pad_edge=False)
    table.add_column("", style="cyan", no_wrap=True)
    for token in columns:
        table.add_column(Text(token), justify="center", no_wrap=True)
    for token, row in zip(rows, attention.tolist(), strict=True):
        cells = (SHADES[min(len(SHADES) - 1, round(weight * (len(SHADES) - 1) * 1.5))] * 2 for weight in row)
        table.add_row(Text(f"{token} "), *cells)
    return table
