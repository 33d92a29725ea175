"""Files that hold both sides of every pair: TSV, CSV and JSON lines."""

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transduce.data.chunks import CHUNK_PAIRS, Chunk, RawPair, chunks_of
from transduce.data.text_files import raw_lines
from transduce.errors import DataError

_COLUMN_NAME = re.compile(r"\s*[\w.\-]{1,40}\s*")
_LONGEST_FIELD = 100_000_000  # characters; csv's own limit is 131,072


@dataclass(frozen=True)
class PairFile(ABC):
    """One file that holds both sides of every pair."""

    path: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def chunks(self, size: int = CHUNK_PAIRS) -> Iterator[Chunk]:
        """Yield all pairs, up to ``size`` at a time."""
        return chunks_of(self.pairs(), size, self.path)

    @abstractmethod
    def pairs(self) -> Iterator[RawPair]:
        """Yield the pair of every line or row.

        One that lacks a side is an error, unless it is blank or not UTF-8: such a pair is left out later.
        """


@dataclass(frozen=True)
class Tsv(PairFile):
    """One file with a pair per line: the first two columns, separated by a tab."""

    def pairs(self) -> Iterator[RawPair]:
        """Yield the pair of every line."""
        return (self.pair(text, line) for line, text in enumerate(raw_lines(self.path), 1))

    def pair(self, text: bytes, line: int) -> RawPair:
        """Split one line."""
        columns = text.split(b"\t", 2)
        if len(columns) > 1:
            return RawPair(columns[0], columns[1], line, ignored_columns=len(columns) > 2)
        if _is_readable(text):
            raise DataError(f"{self.path}, line {line}: no tab", "put one tab between source and target")
        return RawPair(text, b"", line)


@dataclass(frozen=True)
class Csv(PairFile):
    """One comma-separated file with a header.

    Source and target are the columns with these names or, without them, the first two columns.
    """

    def pairs(self) -> Iterator[RawPair]:
        """Yield the pair of every row after the header."""
        # Bytes that are not UTF-8 pass through, so that their row can be reported and left out.
        lines = (f"{line.decode(errors='surrogateescape')}\n" for line in raw_lines(self.path))
        csv.field_size_limit(_LONGEST_FIELD)
        rows = csv.reader(lines)
        try:
            header = next(rows, None)
            if header is None:
                return
            source, target = self._columns(header)
            named = {source, target} != {0, 1} or _is_named(header)
            line = rows.line_num + 1
            for row in rows:
                yield self._pair(row, source, target, line, ignored=not named and len(row) > 2)
                line = rows.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{self.path}, line {rows.line_num}: not CSV: {error}", "quote the field, or use TSV"
            ) from error

    def _columns(self, header: list[str]) -> tuple[int, int]:
        if _is_named(header):
            names = [name.strip().lower() for name in header]
            return names.index("source"), names.index("target")
        if len(header) < 2 or not all(_COLUMN_NAME.fullmatch(name) for name in header[:2]):
            raise DataError(
                f"{self.path}, line 1: no header with the names of at least two columns",
                "start the file with the line: source,target",
            )
        return 0, 1

    def _pair(self, row: list[str], source: int, target: int, line: int, *, ignored: bool) -> RawPair:
        raw = [field.encode(errors="surrogateescape") for field in row]
        if len(raw) > max(source, target):
            return RawPair(raw[source], raw[target], line, ignored)
        text = b",".join(raw)
        if _is_readable(text):
            raise DataError(
                f"{self.path}, line {line}: {len(raw)} columns, but the header names more",
                "add the missing column",
            )
        return RawPair(text, b"", line)


@dataclass(frozen=True)
class JsonLines(PairFile):
    """One file with a JSON object per line: ``{"source": …, "target": …}``.

    Hugging Face's ``{"translation": {"en": …, "de": …}}`` works as well: the first language is the source
    and the second one the target, unless these keys say otherwise.
    """

    source_key: str | None = None
    target_key: str | None = None

    def pairs(self) -> Iterator[RawPair]:
        """Yield the pair of every line."""
        keys = _Keys(self.source_key or "source", self.target_key or "target")
        for line, text in enumerate(raw_lines(self.path), 1):
            try:
                item = json.loads(text)
                texts = item
                if isinstance(item.get("translation"), dict):
                    texts = item["translation"]
                    # The first line decides, so that another order of keys does not swap the sides.
                    keys = keys if keys.decided else self._languages(texts)
                yield RawPair(texts[keys.source].encode(), texts[keys.target].encode(), line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                if _is_readable(text):
                    raise DataError(
                        f"{self.path}, line {line}: no JSON object with the texts "
                        f"{keys.source!r} and {keys.target!r}",
                        'use {"source": "…", "target": "…"} or {"translation": {"en": "…", "de": "…"}}',
                    ) from error
                yield RawPair(text, b"", line)

    def _languages(self, texts: dict[str, Any]) -> "_Keys":
        if self.source_key and self.target_key:
            return _Keys(self.source_key, self.target_key, decided=True)
        source, target = texts  # a ValueError unless there are exactly two languages
        return _Keys(source, target, decided=True)


class _Keys(NamedTuple):
    source: str
    target: str
    decided: bool = False  # by a line of the file


def pair_file(path: Path) -> PairFile:
    """Return the reader for a file that holds both sides, chosen by its name."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return JsonLines(path)
    return Csv(path) if name.endswith(".csv") else Tsv(path)


def _is_named(header: list[str]) -> bool:
    return {"source", "target"} <= {name.strip().lower() for name in header}


def _is_readable(line: bytes) -> bool:
    """Return whether a line is UTF-8 and not blank; other lines are unusable pairs, not errors."""
    try:
        return bool(line.decode().strip())
    except UnicodeDecodeError:
        return False
