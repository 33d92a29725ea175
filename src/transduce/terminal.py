"""What is shown while something takes long: a bar on a terminal, nothing elsewhere."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def with_bar(items: Iterable[T], what: str, total: int | None, console: Console) -> Iterator[T]:
    """The items, and how many of them are done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield from bar.track(items, total=total, description=what)
