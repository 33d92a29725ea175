"""What is shown: results, and while something takes long a bar on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transduce.errors import DataError

T = TypeVar("T")


def result_console() -> Console:
    """Standard output; that nobody would see a result is better known before the work."""
    if sys.stdout is None:  # as `>&-` leaves it
        raise DataError("standard output is closed", "leave it open, or send it to a file")
    return Console()


def with_bar(items: Iterable[T], what: str, total: int | None, console: Console) -> Iterator[T]:
    """The items, and how many of them are done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield from bar.track(items, total=total, description=what)
