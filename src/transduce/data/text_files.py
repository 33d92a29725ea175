"""Lines of text files, plain or gzip.

Lines end at a line feed and nowhere else, so that a CR or U+2028 inside a line does not shift the lines that
follow. A line longer than a limit is an error, so that a file without line feeds, or an endless one, is not
read into memory.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from transduce.errors import DataError, reason_of

MAX_LINE_BYTES = 1_000_000  # by default
_max_line_bytes = MAX_LINE_BYTES

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # its byte order marks, which are never valid UTF-8


def limit_lines(max_bytes: int) -> None:
    """Set the largest size of a line in bytes, for all text that this process reads; 1,000,000 by default."""
    global _max_line_bytes  # noqa: PLW0603 (every reader of text obeys it)
    if max_bytes < 1:
        raise DataError(f"lines are limited to {max_bytes} bytes", "set a limit of at least 1")
    _max_line_bytes = max_bytes


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading; gzip is decompressed. Devices are refused: most of them never end."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}", "give the path of a text file") from error
    is_device = stat.S_ISCHR(os.fstat(file.fileno()).st_mode)
    if is_device and not file.isatty() and str(path) != os.devnull:
        file.close()
        raise DataError(f"{path} is a device, not a file", "give the path of a text file")
    with _reading(path):
        is_gzip = file.peek(2)[:2] == _GZIP
    if is_gzip:
        file.close()  # GzipFile only closes files that it opened itself
        return io.BufferedReader(gzip.GzipFile(path), 1 << 20)
    return file


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a `DataError` that names the file."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"cannot read {path}: {error}", "the file is damaged: create or copy it again"
        ) from error


def has_byte_order_mark(path: Path) -> bool:
    """Return whether a file starts with the UTF-8 byte order mark."""
    with open_binary(path) as file, _reading(path):
        return file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, without line ends and without a byte order mark."""
    with open_binary(path) as file, _reading(path):
        yield from lines_of(file, str(path))


def lines_of(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of an open file, each as soon as it arrives; see `raw_lines`."""
    limit = _max_line_bytes
    # Two bytes more than the limit, for the line's end: a longer line is never read to its end.
    for number, line in enumerate(iter(partial(file.readline, limit + 2), b""), 1):
        if number == 1 and not (line := without_mark(line, name)):
            return  # nothing but a byte order mark
        text = without_end(line)
        if len(text) > limit:
            raise DataError(
                f"{name}, line {number:,}: longer than {limit:,} bytes",
                "break the line, or raise --max-line-bytes (transduce.limit_lines in Python)",
            )
        yield text


def count_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return sum(1 for _ in raw_lines(path))


def without_mark(line: bytes, name: str) -> bytes:
    """Return a file's first line without a byte order mark; refuse UTF-16 and compressed data."""
    if line.startswith(_UTF_16):
        raise DataError(f"{name} is UTF-16", "convert it to UTF-8: iconv -f UTF-16 -t UTF-8")
    if line.startswith(_GZIP):
        raise DataError(f"{name} is gzip", "give it as a file, or decompress it: gzip -dc")
    return line.removeprefix(_BYTE_ORDER_MARK)


def without_end(line: bytes) -> bytes:
    """Return a line without its line feed, and without the CR before it."""
    return line.rstrip(b"\r\n") if line.endswith(b"\n") else line


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode lines, which must be UTF-8; ``name`` is the file that errors report."""
    for number, line in enumerate(lines, start=1):
        if 0 in line:
            raise DataError(
                f"{name}, line {number:,}: a NUL character at byte {line.index(0) + 1}",
                "if the file is UTF-16, convert it: iconv -f UTF-16LE -t UTF-8",
            )
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number:,}: not UTF-8 at byte {error.start + 1}", "save the text as UTF-8"
            ) from error


def require_files(paths: Iterable[Path]) -> None:
    """Refuse pipes, which can be read only once, for what is read several times."""
    for path in paths:
        if path.is_fifo():
            raise DataError(
                f"{path} is a pipe, but the text is read several times", "write it to a file first"
            )


def require_utf8(text: str, name: str) -> None:
    """Raise a `DataError` if a text, such as a command-line argument, cannot be encoded as UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{name} is not UTF-8", "give it as UTF-8") from error


def is_same_file(first: Path | int, second: Path | int) -> bool:
    """Return whether two paths, or file descriptors, are one regular file, whatever their names.

    Writing one of them would overwrite the other. Terminals and pipes do not count.
    """
    try:
        first_stat, second_stat = os.stat(first), os.stat(second)  # noqa: PTH116 (takes descriptors, too)
    except OSError:
        return False
    return stat.S_ISREG(first_stat.st_mode) and os.path.samestat(first_stat, second_stat)
