"""Translations of files and streams."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import IO, Literal, cast

from transduce.decoding.translation import Translation
from transduce.decoding.translator import LINES, Translator
from transduce.errors import DataError


def translate_file(
    translator: Translator, source: Path | None, target: Path | None, layout: Literal["text", "json"]
) -> None:
    """A line out for every line in; standard input and output where no file is given."""
    typed = source is None and sys.stdin.isatty()
    with (
        _open(source, "rb", "read") if source else nullcontext(sys.stdin.buffer) as lines,
        _open(target, "wb", "write") if target else nullcontext(sys.stdout.buffer) as out,
    ):
        decoded = _decoded(lines, str(source or "standard input"))
        for translation in translator.translate(decoded, ahead=1 if typed else LINES):
            out.write(f"{_line(translation, layout)}\n".encode())
            out.flush()


def _line(translation: Translation, layout: Literal["text", "json"]) -> str:
    if layout == "json":
        return json.dumps(asdict(translation), ensure_ascii=False)
    return " ".join(translation.text.splitlines())  # a line stays a line


def _open(path: Path, mode: str, what: str) -> IO[bytes]:
    try:
        return cast("IO[bytes]", path.open(mode))
    except OSError as error:
        raise DataError(f"cannot {what} {path}: {error.strerror}", "check the path") from error


def _decoded(file: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: not UTF-8 at byte {error.start + 1}", "save the text as UTF-8"
            ) from error
