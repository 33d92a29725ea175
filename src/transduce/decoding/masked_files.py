"""Vectors and classes of the lines of files and streams."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, cast

import numpy as np

from transduce.data.corpus import decoded, lines_of
from transduce.decoding.masked import MaskedText, Pooling
from transduce.errors import DataError


def embed_file(model: MaskedText, source: Path | None, target: Path | None, pooling: Pooling) -> None:
    """A vector for every line: a JSON list a line, or one array if the target's name ends in ``.npy``."""
    vectors = model.embed(_lines(source), pooling)
    if target and target.suffix == ".npy":
        rows = list(vectors)
        width = model.model.config.d_model
        with _open_output(target) as file:
            np.save(file, np.stack(rows) if rows else np.empty((0, width), np.float32), allow_pickle=False)
        return
    with _open_output(target) if target else nullcontext(sys.stdout.buffer) as out:
        for vector in vectors:
            out.write(f"{json.dumps([round(float(x), 6) for x in vector])}\n".encode())


def classify_file(model: MaskedText, source: Path | None, target: Path | None) -> None:
    """The class of every line, tab, its probability."""
    with _open_output(target) if target else nullcontext(sys.stdout.buffer) as out:
        for chances in model.classify(_lines(source)):
            name, probability = next(iter(chances.items()))
            out.write(f"{name}\t{probability:.4f}\n".encode())


def _lines(source: Path | None) -> Iterator[str]:
    if source:
        return decoded(lines_of(source), str(source))
    return decoded((line.rstrip(b"\r\n") for line in sys.stdin.buffer), "standard input")


def _open_output(path: Path) -> IO[bytes]:
    try:
        return cast("IO[bytes]", path.open("wb"))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}", "check the path") from error
