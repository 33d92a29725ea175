"""Chunks: a bounded number of pairs in a row, as bytes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CHUNK_PAIRS = 20_000
CHUNK_BYTES = 4_000_000  # a chunk of very long lines has fewer pairs


class RawPair(NamedTuple):
    """One pair as it is in the file; it need not be valid UTF-8."""

    source: bytes
    target: bytes
    line: int  # counted from 1
    ignored_columns: bool = False  # the line has more columns than are used


class Chunk(NamedTuple):
    """Pairs in a row, as bytes: the doctor reports what is wrong with them."""

    sources: list[bytes]
    targets: list[bytes]
    lines: Sequence[int]  # the line of each pair, counted from 1
    where: str  # the source file
    where_target: str  # the target file; the same if one file holds both sides
    ignored_columns: Sequence[int] = ()  # lines with columns that are not used


def chunks_of(pairs: Iterable[RawPair], size: int, source: Path, target: Path) -> Iterator[Chunk]:
    """Yield up to ``size`` pairs at a time, fewer if they are long."""
    collected: list[RawPair] = []
    room = CHUNK_BYTES
    for pair in pairs:
        collected.append(pair)
        room -= len(pair.source) + len(pair.target)
        if len(collected) == size or room <= 0:
            yield _chunk(collected, source, target)
            collected, room = [], CHUNK_BYTES
    if collected:
        yield _chunk(collected, source, target)


def _chunk(pairs: list[RawPair], source: Path, target: Path) -> Chunk:
    return Chunk(
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        [pair.line for pair in pairs],
        str(source),
        str(target),
        [pair.line for pair in pairs if pair.ignored_columns],
    )
