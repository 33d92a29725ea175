"""Training steps that do not fit in memory: detect them and compute them in smaller parts."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from transduce.errors import TrainingError
from transduce.training.checkpoint import Progress
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.objective import Indices


def split_batches(batches: list[Indices], splits: int) -> list[Indices]:
    """Split each batch into this many parts, or into single rows if it has fewer."""
    return [part for batch in batches for part in np.array_split(batch, splits) if len(part)]


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether torch or Python raised this error because memory was exhausted."""
    message = str(error).lower()
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "can't allocate memory" in message
        or "out of memory" in message
    )


def split_further(progress: Progress, batches: list[Indices], workers: WorkerGroup, example: str) -> str:
    """Double the number of parts that batches are split into, after memory was exhausted; return a message.

    Call this outside the ``except`` block: the error keeps the tensors of the failed step alive.
    """
    largest = max(map(len, split_batches(batches, progress.batch_splits)))
    if largest == 1 or workers.size > 1:
        raise TrainingError(
            f"out of memory: {f'a single {example}' if largest == 1 else 'a batch'} does not fit",
            "set a smaller max_tokens in run.toml and continue with --resume, or train a smaller model",
        )
    if workers.device.type == "cuda":
        torch.cuda.empty_cache()
    progress.batch_splits *= 2
    return (
        f"out of memory with {largest} {example}s at once: from step {progress.step:,} on, every batch is "
        f"computed in {progress.batch_splits} parts. The gradients are the same except for dropout"
    )


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Raise a `TrainingError` where memory is exhausted and nothing can be split."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "out of memory",
            "set a smaller max_tokens or train a smaller model; continue a started run with --resume",
        ) from error
