"""Training steps that do not fit in memory: detect them and compute them in smaller parts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from transduce.errors import TrainingError, is_out_of_memory
from transduce.training.checkpoint import Progress
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.objective import Indices


class BatchTooLargeError(Exception):
    """Memory was exhausted in some process. Every process of a run raises this alike, and can go on."""

    def __init__(self, rows: list[int]) -> None:
        """``rows`` are the most examples at once in each of the processes that had too little memory."""
        super().__init__(rows)
        self.rows = rows


def split_batches(batches: list[Indices], splits: int) -> list[Indices]:
    """Split each batch into this many parts, or into single rows if it has fewer."""
    return [part for batch in batches for part in np.array_split(batch, splits) if len(part)]


def add_up(
    workers: WorkerGroup,
    parts: list[Indices],
    compute: Callable[[], Sequence[float]],
    *,
    count: int,
    can_split: bool,
) -> list[float]:
    """Return the sums over all processes of the ``count`` values that ``compute`` returns for its parts.

    If memory is exhausted in any process, all of them raise a `BatchTooLargeError`. That is possible only if
    ``compute`` exchanges nothing with other processes; if it does, ``can_split`` must be false, and the
    process without memory raises a `TrainingError` alone.
    """
    values, rows = [0.0] * count, 0
    try:
        values = list(compute())
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if not can_split:
            raise TrainingError(
                "out of memory: a batch does not fit",
                "set a smaller max_tokens in run.toml and continue with --resume, or train a smaller model",
            ) from error
        rows = max(map(len, parts), default=1)
    # Outside the except block: the error keeps the tensors of the failed computation alive.
    gathered = workers.gather_values([*values, rows])
    if too_large := [int(own[-1]) for own in gathered if own[-1]]:
        raise BatchTooLargeError(too_large)
    return [sum(column) for column in zip(*gathered, strict=True)][:-1]


def split_further(progress: Progress, rows: list[int], device: torch.device, example: str) -> str:
    """Double the number of parts that batches are split into, in every process alike; return a message.

    ``rows`` are those of a `BatchTooLargeError`.
    """
    if min(rows) == 1:
        raise TrainingError(
            f"out of memory: a single {example} does not fit",
            f"start a new run with a smaller model, or without the largest {example}s",
        )
    if device.type == "cuda":
        torch.cuda.empty_cache()
    progress.batch_splits *= 2
    return (
        f"out of memory with {max(rows)} {example}s at once: from step {progress.step:,} on, every batch is "
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
