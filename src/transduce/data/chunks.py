"""Chunks: a bounded number of pairs in a row, as bytes, and the usable pairs among them as text."""

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
    """Pairs in a row, as bytes; they need not be usable."""

    sources: list[bytes]
    targets: list[bytes]
    lines: Sequence[int]  # the line of each pair, counted from 1
    where: str  # the source file
    where_target: str  # the target file; the same if one file holds both sides
    ignored_columns: Sequence[int] = ()  # lines with columns that are not used
    factors: Sequence[list[str]] = ()  # for each source factor, a line per pair
    part: int = 0  # of the corpus, counted from 0


def chunks_of(pairs: Iterable[RawPair], size: int, path: Path) -> Iterator[Chunk]:
    """Yield the pairs of a file that holds both sides, up to ``size`` at a time."""
    lines: list[int] = []
    ignored: list[int] = []

    def texts() -> Iterator[tuple[bytes, bytes]]:
        for source, target, line, ignored_columns in pairs:
            lines.append(line)
            if ignored_columns:
                ignored.append(line)
            yield source, target

    for chunk in aligned_chunks(texts(), size, path, path):
        yield chunk._replace(lines=lines.copy(), ignored_columns=ignored.copy())
        lines.clear()
        ignored.clear()


def aligned_chunks(
    pairs: Iterable[tuple[bytes, bytes]], size: int, source: Path, target: Path
) -> Iterator[Chunk]:
    """Yield pairs of lines, up to ``size`` at a time, fewer if they are long."""
    first, room = 1, CHUNK_BYTES
    sources: list[bytes] = []
    targets: list[bytes] = []
    for source_line, target_line in pairs:
        sources.append(source_line)
        targets.append(target_line)
        room -= len(source_line) + len(target_line)
        if len(sources) == size or room <= 0:
            yield Chunk(sources, targets, range(first, first + len(sources)), str(source), str(target))
            first, room = first + len(sources), CHUNK_BYTES
            sources, targets = [], []
    if sources:
        yield Chunk(sources, targets, range(first, first + len(sources)), str(source), str(target))


class CleanChunk(NamedTuple):
    """Usable pairs, and the line of each."""

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]
    factors: Sequence[list[str]] = ()  # for each source factor, a line per pair
    part: int = 0  # of the corpus, counted from 0


def usable(chunk: Chunk) -> CleanChunk:
    """Return the usable pairs of a chunk."""
    kept = [
        (source, target, row)
        for row, (source, target) in enumerate(
            zip(decode_texts(chunk.sources), decode_texts(chunk.targets), strict=True)
        )
        if source and target and not source.isspace() and not target.isspace()
    ]
    rows = [row for _, _, row in kept]
    return CleanChunk(
        [source for source, _, _ in kept],
        [target for _, target, _ in kept],
        [chunk.lines[row] for row in rows],
        [[lines[row] for row in rows] for lines in chunk.factors],
        chunk.part,
    )


def decode_texts(lines: list[bytes]) -> list[str | None]:
    """Decode all lines at once where possible; lines that are not UTF-8 become ``None``."""
    try:
        texts = b"\n".join(lines).decode().split("\n")
        if len(texts) == len(lines):  # texts from JSON and CSV may contain line feeds
            return [*texts]
    except UnicodeDecodeError:
        pass
    return [_decode_line(line) for line in lines]


def _decode_line(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
