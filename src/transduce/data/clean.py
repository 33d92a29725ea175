"""What of a corpus can be used: pairs that are UTF-8 and empty on neither side."""

from collections.abc import Sequence
from typing import NamedTuple

from transduce.data.corpus import Chunk


class CleanChunk(NamedTuple):
    """Pairs that can be used, and the line each came from."""

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]


def usable(chunk: Chunk) -> CleanChunk:
    """The usable pairs of a chunk."""
    sources, targets = _decode(chunk.sources), _decode(chunk.targets)
    lines = range(chunk.first_line, chunk.first_line + len(sources))
    kept = [
        (source, target, line)
        for source, target, line in zip(sources, targets, lines, strict=True)
        if source and target and not source.isspace() and not target.isspace()
    ]
    return CleanChunk([k[0] for k in kept], [k[1] for k in kept], [k[2] for k in kept])


def _decode(lines: list[bytes]) -> list[str | None]:
    """All at once if that can be; ``None`` for broken ones."""
    try:
        texts = b"\n".join(lines).decode().split("\n")
        if len(texts) == len(lines):  # JSON may hold line feeds
            return [*texts]
    except UnicodeDecodeError:
        pass
    return [_decode_one(line) for line in lines]


def _decode_one(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
