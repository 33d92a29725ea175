"""Vectors and classes of the lines of files."""

import json
from pathlib import Path

import numpy as np

from transduce.decoding.streams import open_output, read_lines, truncate, write_lines
from transduce.prediction.masked_text import MaskedTextModel, Pooling


def embed_file(
    model: MaskedTextModel,
    source: Path | None,
    target: Path | None,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
) -> None:
    """Write a JSON list per line, or one array if the name of the target ends in ``.npy``."""
    vectors = model.stream_vectors(read_lines(source), pooling, normalize=normalize)
    if target and target.suffix == ".npy":
        # The file is opened before the work, and overwritten after it: an error leaves it as it was.
        with open_output(source, target) as out:
            rows, empty = list(vectors), np.empty((0, model.model.config.d_model), np.float32)
            truncate(out, target)
            np.save(out, np.stack(rows) if rows else empty, allow_pickle=False)
        return
    lines = (json.dumps([round(float(x), 6) for x in vector]) for vector in vectors)
    write_lines(lines, source, target)


def classify_file(model: MaskedTextModel, source: Path | None, target: Path | None) -> None:
    """Write the most likely class of each line, a tab and its probability."""
    best = (next(iter(classes.items())) for classes in model.stream_classes(read_lines(source)))
    write_lines((f"{name}\t{probability:.4f}" for name, probability in best), source, target)
