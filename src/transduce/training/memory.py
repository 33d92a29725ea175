"""Batches in parts, where memory does not suffice for the whole."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from transduce.errors import TrainingError
from transduce.training.objectives.objective import Indices


def split(batches: list[Indices], parts: int) -> list[Indices]:
    """Each of them in so many parts; of fewer rows, as many as there are."""
    return [part for batch in batches for part in np.array_split(batch, parts) if len(part)]


def is_out_of_memory(error: Exception) -> bool:
    """Whether this is how torch or Python says that memory does not suffice."""
    said = str(error).lower()
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "can't allocate memory" in said
        or "out of memory" in said
    )


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Where nothing can be split, memory that ends is a user's error; other errors stay what they are."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "memory does not suffice",
            "set a smaller max_tokens or train a smaller model; a run that had begun goes on with --resume",
        ) from error
