"""Lines from standard input."""

import sys
from collections.abc import Iterator
from typing import BinaryIO

from transduce.data.text_files import lines_of
from transduce.errors import DataError


def require_input() -> None:
    """Raise a `DataError` if standard input is closed."""
    if sys.stdin is None:  # the shell's `<&-`
        raise DataError("standard input is closed", "give a file, or pipe text to the command")


def raw_input_lines() -> Iterator[bytes]:
    """Return the lines of standard input as `raw_lines` yields those of a file, each when it arrives."""
    require_input()
    return lines_of(_own_input(), "standard input")


def _own_input() -> BinaryIO:
    """Open standard input through a file object of our own.

    A thread that waits for a line holds the file object's lock. Python takes the lock of `sys.stdin` when it
    exits, and so does every forked process: they would wait for input as well.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # sys.stdin was replaced by something that is no file
        return sys.stdin.buffer
