"""Lines from files or standard input, and where to write what became of them."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, cast

from transduce.data.corpus import decoded, is_one_file, lines_of, lines_of_input
from transduce.errors import DataError

_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1  # their numbers as open files


def read_lines(source: Path | None) -> Iterator[str]:
    """Of a file, or of standard input as they come; they must be UTF-8."""
    return decoded(lines_of(source), str(source)) if source else decoded(lines_of_input(), "standard input")


def open_output(source: Path | None, target: Path | None) -> AbstractContextManager[IO[bytes]]:
    """A file, or standard output; not what is read."""
    if is_one_file(source or _STANDARD_INPUT, target or _STANDARD_OUTPUT):
        raise DataError(
            f"{target or source or 'a file'} is both what is read and what is written",
            "choose another --output",
        )
    if target is None:
        return nullcontext(sys.stdout.buffer)
    try:
        return cast("IO[bytes]", target.open("wb"))
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}", "check the path") from error
