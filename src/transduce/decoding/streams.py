"""Lines from files or standard input, and where to write what became of them."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import IO, cast

from transduce.artifact import is_part_of_a_model
from transduce.data.standard_input import raw_input_lines, require_input
from transduce.data.text_files import decode_lines, is_same_file, open_binary, raw_lines
from transduce.errors import DataError

_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1  # their numbers as open files


def read_lines(source: Path | None) -> Iterator[str]:
    """Of a file, or of standard input as they come; they must be UTF-8."""
    return (
        decode_lines(raw_lines(source), str(source))
        if source
        else decode_lines(raw_input_lines(), "standard input")
    )


def check_output(source: Path | None, target: Path | None, read_too: Path | None = None) -> None:
    """Refuse to write over what is read, or a part of a model; or anything, if there is nothing to read."""
    for path in (source or _STANDARD_INPUT, *([read_too] if read_too else [])):
        if is_same_file(path, target or _STANDARD_OUTPUT):
            raise DataError(
                f"{target or source or 'a file'} is both what is read and what is written",
                "choose another --output",
            )
    if source is None:
        require_input()
    elif not source.exists() or source.is_file() or source.is_dir():  # a pipe can be opened only once
        open_binary(source).close()
    if target is not None:
        refuse_model(target)


def open_output(
    source: Path | None, target: Path | None, read_too: Path | None = None
) -> AbstractContextManager[IO[bytes]]:
    """A file, or standard output; see `check_output`. What is in the file stays until `begin_anew`."""
    check_output(source, target, read_too)
    if target is None:
        return nullcontext(standard_output())
    try:
        return cast("IO[bytes]", target.open("ab"))
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}", "check the path") from error


def begin_anew(out: IO[bytes], target: Path | None) -> None:
    """What was in the file is lost."""
    if target is not None and target.is_file():  # and no pipe or device, which keep nothing
        out.truncate(0)


def write_lines(
    lines: Iterable[str], source: Path | None, target: Path | None, read_too: Path | None = None
) -> None:
    """Each as it comes; see `open_output`. If there is no first one, for an error, nothing is lost."""
    with open_output(source, target, read_too) as out:
        coming = iter(lines)
        first = list(islice(coming, 1))
        begin_anew(out, target)
        for line in chain(first, coming):
            out.write(f"{line}\n".encode())
            out.flush()


def standard_output() -> IO[bytes]:
    """Where lines go if no file is named."""
    if sys.stdout is None:  # as `>&-` leaves it
        raise DataError("standard output is closed", "name a file, or leave it open")
    return sys.stdout.buffer


def refuse_model(target: Path) -> None:
    """Whoever writes there would lose a model."""
    if is_part_of_a_model(target):
        raise DataError(f"{target} is part of a model", "choose another --output")
