"""Where pairs of texts come from: aligned files, TSV, JSON lines; plain or gzip; several of them in a row.

Lines end at a line feed and nowhere else: a CR or U+2028 inside a line does not move all that follow.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from transduce.errors import DataError

CHUNK = 20_000


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

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs; files of unequal length are an error that names both lengths."""
        with open_binary(self.source) as source, open_binary(self.target) as target:
            line = 1
            while True:
                sources, targets = _lines(source, size, self.source), _lines(target, size, self.target)
                if len(sources) != len(targets):
                    raise self._unequal(line, len(sources), len(targets), source, target)
                if not sources:
                    return
                yield Chunk(sources, targets, line, str(self.source), str(self.target))
                line += len(sources)

    def _unequal(
        self, line: int, sources: int, targets: int, source: IO[bytes], target: IO[bytes]
    ) -> DataError:
        with readable(self.source):
            source_lines = line - 1 + sources + sum(1 for _ in source)
        with readable(self.target):
            target_lines = line - 1 + targets + sum(1 for _ in target)
        return DataError(
            f"{self.source} has {source_lines:,} lines and {self.target} has {target_lines:,}",
            f"run: transduce check --source {self.source} --target {self.target}",
        )


@dataclass(frozen=True)
class Tsv:
    """One file; source and target are its first two columns."""

    path: Path

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs; a line without a tab is an error."""
        with open_binary(self.path) as file:
            line = 1
            while lines := _lines(file, size, self.path):
                columns = [text.split(b"\t") for text in lines]
                for offset, found in enumerate(columns):
                    if len(found) < 2:
                        raise DataError(
                            f"{self.path}, line {line + offset}: no tab", "separate source and target by one"
                        )
                name = str(self.path)
                yield Chunk([c[0] for c in columns], [c[1] for c in columns], line, name, name)
                line += len(lines)


@dataclass(frozen=True)
class JsonLines:
    """One file; each line an object with both texts."""

    path: Path
    source_key: str = "source"
    target_key: str = "target"

    def chunks(self, size: int = CHUNK) -> Iterator[Chunk]:
        """All pairs; a line that is no such object is an error."""
        with open_binary(self.path) as file:
            line = 1
            while lines := _lines(file, size, self.path):
                pairs = [self._pair(text, line + offset) for offset, text in enumerate(lines)]
                name = str(self.path)
                yield Chunk([p[0] for p in pairs], [p[1] for p in pairs], line, name, name)
                line += len(lines)

    def _pair(self, text: bytes, line: int) -> tuple[bytes, bytes]:
        try:
            item = json.loads(text)
            source, target = item[self.source_key], item[self.target_key]
            return source.encode(), target.encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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


def _both_sides(path: Path) -> Part:
    is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))
    return JsonLines(path) if is_json else Tsv(path)


def open_binary(path: Path) -> IO[bytes]:
    """A file for reading, unpacked if it is gzip."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", "check the path") from error
    if file.peek(2)[:2] == b"\x1f\x8b":
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


def _lines(file: IO[bytes], count: int, path: Path) -> list[bytes]:
    """The next lines, without their ends."""
    with readable(path):
        lines = list(islice(file, count))
    return [line.rstrip(b"\r\n") if line.endswith(b"\n") else line for line in lines]
