"""What a file is that is not the model it should be: told by its first bytes, in words that users know."""

import struct
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError
from transduce.files import open_regular

_PEEK = 512  # bytes
_DOWNLOAD = "download the file itself"
_OTHER = "give the file with the weights"


class FileKind(NamedTuple):
    """What a file is, with an article, and what a user can do about it."""

    name: str
    remedy: str


_BEGINNINGS = {
    b"version https://git-lfs": FileKind("a pointer of Git LFS", f"run: git lfs pull, or {_DOWNLOAD}"),
    b"<!doctype html": FileKind("a web page", _DOWNLOAD),
    b"<html": FileKind("a web page", _DOWNLOAD),
    b"\x1f\x8b": FileKind("a gzip archive", "unpack it first"),
    b"\x89hdf": FileKind("an HDF5 file, as Keras writes it", _OTHER),
    b"\x93numpy": FileKind("an array of NumPy", _OTHER),
    b"gguf": FileKind("a GGUF file, as llama.cpp reads it", "give the model that it was made from"),
}


def kind_of(path: Path) -> FileKind | None:
    """Return what a file is if its beginning tells; ``None`` for archives, pickles and the unknown."""
    try:
        with open_regular(path) as file:
            data = file.read(_PEEK)
    except (OSError, DataError):
        return None
    if not data:
        return FileKind("an empty file", _DOWNLOAD)
    for beginning, kind in _BEGINNINGS.items():
        if data.lower().startswith(beginning):
            return kind
    if _is_safetensors(data):
        return FileKind("a safetensors file", "give it the ending .safetensors, or give the folder it is in")
    return FileKind("a text file", _OTHER) if _is_text(data) else None


def _is_safetensors(data: bytes) -> bool:
    """Return whether these bytes begin with a plausible length of a header, and the header."""
    return len(data) > 9 and data[8:10] == b'{"' and struct.unpack("<Q", data[:8])[0] < 1 << 32


def _is_text(data: bytes) -> bool:
    text = data.decode("utf-8", errors="ignore")  # a character may be cut in two at the end
    is_readable = all(letter.isprintable() or letter.isspace() for letter in text)
    return is_readable and len(text.encode()) > len(data) - 4
