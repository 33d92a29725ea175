"""Usable pairs of a corpus: valid UTF-8, and not blank on either side."""

from collections.abc import Sequence
from typing import NamedTuple

from transduce.data.chunks import Chunk


class CleanChunk(NamedTuple):
    """Usable pairs, and the line of each."""

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]


def usable(chunk: Chunk) -> CleanChunk:
    """Return the usable pairs of a chunk."""
    kept = [
        (source, target, line)
        for source, target, line in zip(
            _decode(chunk.sources), _decode(chunk.targets), chunk.lines, strict=True
        )
        if source and target and not source.isspace() and not target.isspace()
    ]
    return CleanChunk([k[0] for k in kept], [k[1] for k in kept], [k[2] for k in kept])


def _decode(lines: list[bytes]) -> list[str | None]:
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
