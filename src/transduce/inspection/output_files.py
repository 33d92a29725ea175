"""Where an inspection is written: over its like alone, and never over what it reads."""

import os
from pathlib import Path

from transduce.artifact import is_part_of_a_model
from transduce.data.text_files import is_same_file
from transduce.errors import ConfigError, TransduceError

_BEGINS = {"page": b"<!DOCTYPE html>", "picture": b"\x89PNG", "JSON": b"{"}


def keep_apart(page: Path | None, picture: Path | None) -> None:
    """Refuse one file for both."""
    if page and picture and page.resolve() == picture.resolve():
        raise ConfigError(f"both the page and the picture would be {picture}", "choose another --png")


def keep(path: Path | None, kind: str, *read: Path) -> None:
    """Refuse before the work what could not be written after it, what is there already and is no ``page``,
    ``picture`` or ``JSON``, and what is ``read``, or part of a model.
    """
    if path is None:
        return
    _require_place(path)
    if not path.is_file():
        return
    if is_part_of_a_model(path) or any(is_same_file(path, other) for other in read):
        raise ConfigError(f"{path} is both what is read and what is written", "choose another file")
    begins = _BEGINS[kind]
    with path.open("rb") as file:
        there = file.read(len(begins))
    if there and there != begins:
        raise ConfigError(f"{path} is there already, and is no {kind}", "choose another file")


def _require_place(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}", "make it, or choose another place")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{path} may not be written", "choose another place")


def write(path: str | Path, content: str | bytes) -> None:
    """Text as UTF-8; what is left of names of files that are none becomes ``?``."""
    data = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise TransduceError(f"cannot write {path}: {error.strerror}", "choose another place") from error
