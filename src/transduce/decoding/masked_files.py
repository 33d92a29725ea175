"""Vectors and classes of the lines of files and streams."""

import json
from pathlib import Path

import numpy as np

from transduce.decoding.masked import MaskedText, Pooling
from transduce.decoding.streams import check_output, open_output, read_lines


def embed_file(model: MaskedText, source: Path | None, target: Path | None, pooling: Pooling) -> None:
    """A vector for every line: a JSON list a line, or one array if the target's name ends in ``.npy``."""
    vectors = model.embed(read_lines(source), pooling)
    if target and target.suffix == ".npy":
        check_output(source, target)  # before all the work; what is there is written over after it
        rows, none = list(vectors), np.empty((0, model.model.config.d_model), np.float32)
        with open_output(source, target) as out:
            np.save(out, np.stack(rows) if rows else none, allow_pickle=False)
        return
    with open_output(source, target) as out:
        for vector in vectors:
            out.write(f"{json.dumps([round(float(x), 6) for x in vector])}\n".encode())


def classify_file(model: MaskedText, source: Path | None, target: Path | None) -> None:
    """The class of every line, tab, its probability."""
    found = model.classify(read_lines(source))
    with open_output(source, target) as out:
        for chances in found:
            name, probability = next(iter(chances.items()))
            out.write(f"{name}\t{probability:.4f}\n".encode())
