"""Where pairs of texts come from: aligned files, TSV, JSON lines; plain or gzip; several of them in a row.

Lines end at a line feed and nowhere else: a CR or U+2028 inside a line does not move all that follow.
"""

import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

from transduce.errors import DataError

CHUNK = 20_000  # pairs
MOST_BYTES = 4_000_000  # of a chunk, however long its lines are
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # its marks, which are never UTF-8


class Chunk(NamedTuple):
    """Pairs in a row, as bytes: what is wrong with them is the doctor's to say."""

    sources: list[bytes]
    targets: list[bytes]
    first_line: int  # counted from 1, in `where`
    where: str
    where_target: str


@dataclass(frozen=True)
class AlignedFiles:
    """Two files; line by line, one is the other's translation."""

    source: Path
    target: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files."""
        return self.source, self.target

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs; files of unequal length are an error that names both lengths."""
        pairs = zip(lines_of(self.source), lines_of(self.target), strict=True)
        try:
            yield from _chunks(pairs, size, self.source, self.target)
        except ValueError as error:
            raise self._unequal() from error

    def _unequal(self) -> DataError:
        source_lines, target_lines = (sum(1 for _ in lines_of(path)) for path in self.paths)
        return DataError(
            f"{self.source} has {source_lines:,} lines and {self.target} has {target_lines:,}",
            f"run: transduce check --source {self.source} --target {self.target}",
        )


@dataclass(frozen=True)
class Tsv:
    """One file; source and target are its first two columns."""

    path: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its file."""
        return (self.path,)

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs; a line without a tab is an error, unless it is blank or broken UTF-8."""
        pairs = (self._pair(text, line) for line, text in enumerate(lines_of(self.path), 1))
        return _chunks(pairs, size, self.path, self.path)

    def _pair(self, text: bytes, line: int) -> tuple[bytes, bytes]:
        columns = text.split(b"\t", 2)
        if len(columns) > 1:
            return columns[0], columns[1]
        if _is_readable(text):
            raise DataError(
                f"{self.path}, line {line}: no tab", "put one between what is read and what is to be said"
            )
        return text, b""


@dataclass(frozen=True)
class JsonLines:
    """One file; each line an object with both texts."""

    path: Path
    source_key: str = "source"
    target_key: str = "target"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its file."""
        return (self.path,)

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs; a line that is no such object is an error, unless it is blank or broken UTF-8."""
        pairs = (self._pair(text, line) for line, text in enumerate(lines_of(self.path), 1))
        return _chunks(pairs, size, self.path, self.path)

    def _pair(self, text: bytes, line: int) -> tuple[bytes, bytes]:
        try:
            item = json.loads(text)
            source, target = item[self.source_key], item[self.target_key]
            return source.encode(), target.encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if not _is_readable(text):
                return text, b""
            raise DataError(
                f"{self.path}, line {line}: no object with texts {self.source_key!r} and {self.target_key!r}",
                "correct the line",
            ) from error


Part = AlignedFiles | Tsv | JsonLines


@dataclass(frozen=True)
class Corpus:
    """Several parts, one after the other."""

    parts: tuple[Part, ...]

    @classmethod
    def of(
        cls, sources: Sequence[Path], targets: Sequence[Path], both: Sequence[Path], what: str
    ) -> "Corpus | None":
        """Aligned files in pairs, then files that hold both sides; ``None`` if there are none at all."""
        if len(sources) != len(targets):
            raise DataError(
                f"{len(sources)} source and {len(targets)} target files were given for {what}",
                "give them in pairs",
            )
        aligned = [AlignedFiles(source, target) for source, target in zip(sources, targets, strict=True)]
        parts = (*aligned, *(_both_sides(path) for path in both))
        return cls(parts) if parts else None

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs of all parts."""
        for part in self.parts:
            yield from part.chunks(size)


def _is_readable(line: bytes) -> bool:
    """UTF-8, and not blank. What is not is a pair that cannot be used, as in aligned files, and no error."""
    try:
        return bool(line.decode().strip())
    except UnicodeDecodeError:
        return False


def _both_sides(path: Path) -> Part:
    is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))
    return JsonLines(path) if is_json else Tsv(path)


def open_binary(path: Path) -> IO[bytes]:
    """A file for reading, unpacked if it is gzip."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", "check the path") from error
    if file.peek(2)[:2] == _GZIP:
        file.close()  # GzipFile closes only what it opened
        return io.BufferedReader(gzip.GzipFile(path), 1 << 20)
    return file


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Trouble while a file is read, said in one line."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}", "the file is damaged: make it again") from error


def has_byte_order_mark(path: Path) -> bool:
    """Whether a file starts with what some programs put before UTF-8 text."""
    with open_binary(path) as file, readable(path):
        return file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, without their ends and without a byte order mark."""
    with open_binary(path) as file, readable(path):
        first = _first(file.readline(), str(path))
        for line in chain([first] if first else [], file):
            yield line.rstrip(b"\r\n") if line.endswith(b"\n") else line


def _first(line: bytes, name: str) -> bytes:
    """A file's first line without a byte order mark, if what follows is text."""
    if line.startswith(_UTF_16):
        raise DataError(f"{name} is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8")
    if line.startswith(_GZIP):
        raise DataError(f"{name} is packed", "name it as a file, or unpack it: gzip -dc")
    return line.removeprefix(_BYTE_ORDER_MARK)


def is_one_file(one: Path | int, other: Path | int) -> bool:
    """Whether two paths, or numbers of open files, are one file by whatever names: to write it is to lose it.

    Terminals, pipes and the like are no such files.
    """
    try:
        first, second = os.stat(one), os.stat(other)  # noqa: PTH116 (of numbers, too)
    except OSError:
        return False
    return stat.S_ISREG(first.st_mode) and os.path.samestat(first, second)


def require_input() -> None:
    """Standard input must be there."""
    if sys.stdin is None:  # as `<&-` leaves it
        raise DataError("standard input is closed", "name a file, or leave it open")


def lines_of_input() -> Iterator[bytes]:
    """The lines of standard input, as `lines_of` gives those of a file, each as it comes."""
    require_input()
    for number, line in enumerate(_own_input()):
        text = line if number else _first(line, "standard input")
        yield text.rstrip(b"\r\n") if text.endswith(b"\n") else text


def _own_input() -> BinaryIO:
    """Standard input, through a file object that is nobody else's.

    Whoever waits for a line holds the object's lock. Python takes that of its own one when it ends, and so
    does every process that is forked from it.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # something else stands in for it
        return sys.stdin.buffer


def require_utf8(text: str, what: str) -> None:
    """A text of the command line need not be UTF-8, and no tokenizer reads one that is not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{what} is not UTF-8", "give it as UTF-8") from error


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of text, which must be UTF-8; ``name`` says where they come from."""
    for number, line in enumerate(lines, start=1):
        if 0 in line:
            where = f"{name}, line {number:,}: a zero at byte {line.index(0) + 1}"
            raise DataError(where, "text has none: if it is UTF-16, convert it: iconv -f UTF-16LE -t UTF-8")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number:,}: not UTF-8 at byte {error.start + 1}", "save the text as UTF-8"
            ) from error


def _chunks(pairs: Iterable[tuple[bytes, bytes]], size: int, where: Path, target: Path) -> Iterator[Chunk]:
    """Up to ``size`` pairs at a time, fewer if they are long."""
    first, room = 1, MOST_BYTES
    sources: list[bytes] = []
    targets: list[bytes] = []
    for one, other in pairs:
        sources.append(one)
        targets.append(other)
        room -= len(one) + len(other)
        if len(sources) == size or room <= 0:
            yield Chunk(sources, targets, first, str(where), str(target))
            first, room = first + len(sources), MOST_BYTES
            sources, targets = [], []
    if sources:
        yield Chunk(sources, targets, first, str(where), str(target))
