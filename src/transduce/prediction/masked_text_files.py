"""Vectors and classes of the lines of files and streams."""

import json
from pathlib import Path

import numpy as np

from transduce.decoding.streams import begin_anew, open_output, read_lines, write_lines
from transduce.prediction.masked_text import MaskedText, Pooling


def embed_file(model: MaskedText, source: Path | None, target: Path | None, pooling: Pooling) -> None:
    """A vector for every line: a JSON list a line, or one array if the target's name ends in ``.npy``."""
    vectors = model.embed(read_lines(source), pooling)
    if target and target.suffix == ".npy":
        # It is opened before all the work; what is there is written over after it.
        with open_output(source, target) as out:
            rows, none = list(vectors), np.empty((0, model.model.config.d_model), np.float32)
            begin_anew(out, target)
            np.save(out, np.stack(rows) if rows else none, allow_pickle=False)
        return
    lines = (json.dumps([round(float(x), 6) for x in vector]) for vector in vectors)
    write_lines(lines, source, target)


def classify_file(model: MaskedText, source: Path | None, target: Path | None) -> None:
    """The class of every line, tab, its probability."""
    found = (next(iter(chances.items())) for chances in model.classify(read_lines(source)))
    write_lines((f"{name}\t{probability:.4f}" for name, probability in found), source, target)
