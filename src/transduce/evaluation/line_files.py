"""Lines of files that go together."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError


def read(path: Path) -> Iterator[str]:
    """The lines of a file, which must be UTF-8."""
    return decode_lines(raw_lines(path), str(path))


def read_sources(path: Path) -> list[str]:
    """All lines, none of which may be empty."""
    lines = list(read(path))
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise DataError(f"{path}, line {number:,}: empty", "leave this line out of all files")
    return lines


def read_references(paths: Sequence[Path], *, alternatives: bool, tabs: bool = True) -> list[list[str]]:
    """Of each line, all references that the files have; with ``alternatives``, tabs stand between several.

    Without them, a tab is an error unless there may be ``tabs``. Where some of the files have nothing, a line
    has fewer references than others.
    """
    files = [list(read(path)) for path in paths]
    for path, lines in zip(paths, files, strict=True):
        same_length(paths[0], len(files[0]), path, len(lines))
    references = []
    for number, line in enumerate(zip(*files, strict=True), 1):
        texts = [text for one in line for text in (one.split("\t") if alternatives else [one])]
        found = [text for text in texts if text.strip()]
        for path, text in zip(paths, line, strict=True):
            if not tabs and not alternatives and "\t" in text.strip():
                raise DataError(f"{path}, line {number:,}: a tab", "add --alternatives if it parts several")
        if not found:
            raise DataError(f"{paths[0]}, line {number:,}: no reference", "leave this line out of all files")
        references.append(found)
    if not references:
        raise DataError(f"{paths[0]} has no lines", "give a file with references")
    return references


def same_length(one: Path, lines: int, other: Path, others: int) -> None:
    """Refuse files that cannot go line by line."""
    if lines != others:
        raise DataError(
            f"{one} has {lines:,} lines and {other} has {others:,}", "give files that go line by line"
        )
