"""Progress on a terminal: one status line that fits its width and is redrawn in place."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment

from transduce.errors import printable

T = TypeVar("T")

_GAP = "  "
_SHORTEST_BAR, _LONGEST_BAR = 10, 40
_REDRAWS_PER_SECOND = 4
_WIDE = 10_000  # columns of output that goes to a file or a pipe: no table is wider
# rich has no control code for "erase from the cursor to the end of the screen".
_ERASE_BELOW = Segment("\x1b[0J", None, [(ControlType.ERASE_IN_LINE, 0)])
_TO_LINE_START = Segment("\r", None, [(ControlType.CARRIAGE_RETURN,)])


@dataclass(frozen=True)
class Column:
    """A piece of the status line. On a narrow terminal, columns of high rank are left out first."""

    text: str
    rank: int


_BAR = Column(" " * _SHORTEST_BAR, rank=3)  # its place in the line; it takes the room that is left


class StatusLine:
    """The last line of a terminal, redrawn several times per second; nothing where there is no terminal.

    The cursor rests at the start of the line. When the window becomes narrower, the terminal wraps the line
    below the cursor, where the next redraw erases it; and the "^C" of a Ctrl-C is overwritten.
    """

    def __init__(self, console: Console, what: str, total: int | None) -> None:
        """Prepare the line of the work called ``what``; without a ``total``, it has no bar or time left."""
        self._what, self._total = what, total
        self.deadline = math.inf  # the time.monotonic() at which the work ends in any case
        self._done, self._columns = 0, tuple[Column, ...]()
        self._first: tuple[float, int] | None = None  # time and count of the first update
        self._updated = 0.0
        self._on_terminal = console.is_terminal
        self._live = Live(self, console=console, transient=True, refresh_per_second=_REDRAWS_PER_SECOND)

    def __enter__(self) -> "StatusLine":
        if self._on_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, done: int, columns: Sequence[Column] = ()) -> None:
        """Show from the next redraw on that ``done`` of the total are done, with these columns."""
        self._updated = time.monotonic()
        self._first = self._first or (self._updated, done)
        self._done, self._columns = done, tuple(columns)

    @property
    def time_left(self) -> str:
        """The estimated time left, such as "2 min 5 s left"; empty at the end, and while it is unknown."""
        if self._first is None or self._total is None:
            return ""
        start, already_done = self._first
        if not already_done < self._done < self._total:
            return ""
        pace = (self._updated - start) / (self._done - already_done)
        end = min(self._updated + pace * (self._total - self._done), self.deadline)
        return f"{format_duration(end - time.monotonic())} left"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as many columns as fit, with a bar if there is room for it, and no line break."""
        if self._first is None:
            return
        total = "" if self._total is None else f"/{self._total:,}"
        columns = [Column(f"{self._what} {self._done:,}{total}", rank=1)]
        if self._total is not None:
            columns.append(_BAR)
        columns += [*self._columns, Column(self.time_left, rank=0)]
        width = options.max_width - 1  # some terminals wrap a line that is full
        kept = fit([column for column in columns if column.text], width)
        room = width - line_width(kept)
        yield _ERASE_BELOW
        for number, column in enumerate(kept):
            yield Segment(_GAP if number else "")
            if column is _BAR:
                bar_width = min(len(_BAR.text) + room, _LONGEST_BAR)
                yield ProgressBar(total=self._total, completed=self._done, width=bar_width)
            else:
                yield Segment(column.text)
        yield _TO_LINE_START


def line_width(columns: Sequence[Column]) -> int:
    """Return the number of characters of a line of these columns."""
    return len(_GAP.join(column.text for column in columns))


def fit(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns without those of the highest ranks that do not fit into ``width``."""
    kept = list(columns)
    while len(kept) > 1 and line_width(kept) > width:
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``45 s``, ``2 min 5 s`` or ``3 h 20 min``."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(whole / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def with_bar(items: Iterable[T], what: str, total: int | None, console: Console) -> Iterator[T]:
    """Yield the items and show on a terminal how many of them are done; ``what`` names the work."""
    with StatusLine(console, what, total) as line:
        for done, item in enumerate(items):
            line.update(done)
            yield item


def print_line(console: Console, text: str) -> None:
    """Print text in lines that are not wrapped, so that paths and commands can be copied."""
    text = "\n".join(map(printable, text.split("\n")))
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def output_console() -> Console:
    """Return standard output; where it is a file or a pipe, wide enough that no table is cut or wrapped."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)
