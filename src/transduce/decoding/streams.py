"""Lines from files or standard input, and where to write what became of them."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, cast

from transduce.artifact import is_part_of_a_model
from transduce.data.corpus import decoded, is_one_file, lines_of, lines_of_input
from transduce.errors import DataError

_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1  # their numbers as open files


def read_lines(source: Path | None) -> Iterator[str]:
    """Of a file, or of standard input as they come; they must be UTF-8."""
    return decoded(lines_of(source), str(source)) if source else decoded(lines_of_input(), "standard input")


def open_output(
    source: Path | None, target: Path | None, read_too: Path | None = None
) -> AbstractContextManager[IO[bytes]]:
    """A file, or standard output; not what is read, and no part of a model."""
    for path in (source or _STANDARD_INPUT, *([read_too] if read_too else [])):
        if is_one_file(path, target or _STANDARD_OUTPUT):
            raise DataError(
                f"{target or source or 'a file'} is both what is read and what is written",
                "choose another --output",
            )
    if target is None:
        return nullcontext(standard_output())
    refuse_model(target)
    try:
        return cast("IO[bytes]", target.open("wb"))
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}", "check the path") from error


def standard_output() -> IO[bytes]:
    """Where lines go if no file is named."""
    if sys.stdout is None:  # as `>&-` leaves it
        raise DataError("standard output is closed", "name a file, or leave it open")
    return sys.stdout.buffer


def refuse_model(target: Path) -> None:
    """Whoever writes there would lose a model."""
    if is_part_of_a_model(target):
        raise DataError(f"{target} is part of a model", "choose another --output")
