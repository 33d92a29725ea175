"""Checks of the files that an inspection writes, before the work is done."""

import os
from pathlib import Path

from transduce.artifact import is_part_of_a_model
from transduce.data.text_files import is_same_file
from transduce.errors import ConfigError, TransduceError, reason_of
from transduce.files import real_path

_FIRST_BYTES = {"HTML page": b"<!DOCTYPE html>", "PNG image": b"\x89PNG", "JSON file": b"{"}


def require_different(page: Path | None, image: Path | None) -> None:
    """Refuse one file for both the page and the image."""
    if page and image and real_path(page) == real_path(image):
        raise ConfigError(f"--out and --png are both {image}", "choose another file for --png")


def check_output(path: Path | None, kind: str, *inputs: Path) -> None:
    """Refuse a file that cannot be written, that is one of the inputs, or that would be lost.

    A file that exists is overwritten only if it is of the same kind: ``HTML page``, ``PNG image`` or
    ``JSON file``.
    """
    if path is None:
        return
    _require_writable(path)
    if not path.is_file():
        return
    if is_part_of_a_model(path) or any(is_same_file(path, other) for other in inputs):
        raise ConfigError(f"{path} is an input and would be overwritten", "choose another file")
    expected = _FIRST_BYTES[kind]
    with path.open("rb") as file:
        first_bytes = file.read(len(expected))
    if first_bytes and first_bytes != expected:
        raise ConfigError(f"{path} exists and is not a {kind}", "choose another file")


def _require_writable(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", "give the name of a file")
    if not path.parent.is_dir():
        raise ConfigError(f"the folder {path.parent} does not exist", "create it, or choose another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{path} is not writable", "choose another file")


def write(path: str | Path, content: str | bytes) -> None:
    """Write a file; text becomes UTF-8, with ``?`` for characters that cannot be encoded."""
    data = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise TransduceError(f"cannot write {path}: {reason_of(error)}", "choose another file") from error
