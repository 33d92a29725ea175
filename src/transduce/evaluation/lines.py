"""Lines of text that belong together, from files or from lists of strings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError
from transduce.files import user_path

Text: TypeAlias = str | Path | Sequence[str]  # a file, or its lines
# A file, several files, the lines themselves, or for each line all its references.
ReferenceText: TypeAlias = str | Path | Sequence[Path] | Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Lines:
    """Lines of text, and the file or argument they come from."""

    name: str
    lines: list[str]


@dataclass(frozen=True)
class ReferenceLines:
    """For each line, every accepted reference."""

    name: str
    lines: list[list[str]]


def read_file(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or gzip."""
    return decode_lines(raw_lines(path), str(path))


def read_text(text: Text, argument: str) -> Lines:
    """Read a file, or take the lines that were given as ``argument``."""
    if isinstance(text, str | Path):
        return Lines(str(text), list(read_file(user_path(text))))
    return Lines(argument, list(text))


def read_sources(text: Text) -> Lines:
    """Read source lines; none of them may be empty."""
    source = read_text(text, "source")
    for number, line in enumerate(source.lines, 1):
        if not line.strip():
            raise DataError(f"{source.name}, line {number:,}: empty", "remove this line from all files")
    return source


def read_references(reference: ReferenceText, *, alternatives: bool, tabs: bool = True) -> ReferenceLines:
    """Read every reference of each line; with ``alternatives``, tabs separate the references of a line.

    Without ``alternatives``, ``tabs`` says whether a line may contain a tab. Of several files, some may have
    an empty line where the others have a reference.
    """
    if isinstance(reference, str | Path):
        texts = [read_text(reference, "reference")]
    elif reference and isinstance(reference[0], Path):
        texts = [read_text(path, "reference") for path in cast("Sequence[Path]", reference)]
    elif reference and not isinstance(reference[0], str):
        given = [list(cast("Sequence[str]", accepted)) for accepted in reference]
        return _require_references(ReferenceLines("reference", given))
    else:
        texts = [read_text(cast("Sequence[str]", reference), "reference")]
    for text in texts[1:]:
        require_same_length(texts[0], text)
    references = []
    for number, row in enumerate(zip(*(text.lines for text in texts), strict=True), 1):
        for text, line in zip(texts, row, strict=True):
            if not tabs and not alternatives and "\t" in line.strip():
                raise DataError(
                    f"{text.name}, line {number:,}: contains a tab",
                    "use --alternatives if tabs separate the references of a line",
                )
        accepted = [part for line in row for part in (line.split("\t") if alternatives else [line])]
        references.append([part for part in accepted if part.strip()])
    return _require_references(ReferenceLines(texts[0].name, references))


def _require_references(references: ReferenceLines) -> ReferenceLines:
    if not references.lines:
        raise DataError(f"{references.name} has no lines", "give at least one reference")
    for number, accepted in enumerate(references.lines, 1):
        if not any(reference.strip() for reference in accepted):
            raise DataError(
                f"{references.name}, line {number:,}: no reference", "remove this line from all files"
            )
    return references


def require_same_length(first: Lines | ReferenceLines, second: Lines | ReferenceLines) -> None:
    """Refuse texts with different numbers of lines."""
    require_same_count(first.name, len(first.lines), second.name, len(second.lines))


def require_same_count(first: str | Path, first_lines: int, second: str | Path, second_lines: int) -> None:
    """Refuse files with different numbers of lines."""
    if first_lines != second_lines:
        raise DataError(
            f"{first} has {first_lines:,} lines and {second} has {second_lines:,}",
            "give files whose lines correspond one to one",
        )
