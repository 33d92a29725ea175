"""Worker processes for batches: one process per core, each on one thread.

The steps of decoding are small: two threads in one step spend more time waiting for each other than
computing. A forked process shares the model's weights at no cost.
"""

import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch

from transduce.errors import TransduceError
from transduce.machine import delayed_signals

Task = TypeVar("Task")
Result = TypeVar("Result")

_work: Callable[[Any], Any]  # in a forked process: the function that it runs


class WorkerPool(Generic[Task, Result]):
    """A context manager that applies a function to several tasks on several cores.

    There are as many processes as torch has threads, or at most ``limit``. They are forked at the first call
    of `map` with more than one task. Each has a copy of what ``work`` refers to at that time: changes that
    ``work`` makes to it are lost.
    """

    def __init__(self, work: Callable[[Task], Result], *, limit: int | None = None) -> None:
        self._work, self._pool = work, None
        processes = min(torch.get_num_threads(), limit or torch.get_num_threads())
        if processes > 1 and "fork" in multiprocessing.get_all_start_methods():
            self._pool = ProcessPoolExecutor(
                processes,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_begin,
                initargs=(work,),
            )

    def __enter__(self) -> "WorkerPool[Task, Result]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown()

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """Return ``[work(task) for task in tasks]``; a single task runs in this process, on all threads."""
        if self._pool is None or len(tasks) < 2:
            return [self._work(task) for task in tasks]
        try:
            with delayed_signals():
                futures = [self._pool.submit(_call, task) for task in tasks]  # this forks the processes
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise TransduceError(
                "a worker process was killed, perhaps because memory ran out",
                "set OMP_NUM_THREADS=1 to use a single process",
            ) from error
        except BaseException:
            self._pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(work: Callable[[Any], Any]) -> None:
    global _work  # noqa: PLW0603 (one per process)
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback when the user interrupts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    torch.set_num_threads(1)
    gc.freeze()  # collecting what was inherited would cost time, and copy memory that is shared
    # Another thread of the parent may have held the locks of these streams when this process was forked:
    # flushing them at exit would wait forever.
    sys.stdout = sys.stderr = None
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent ends, in whatever way."""
    parent = multiprocessing.parent_process()
    if parent:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _call(task: Any) -> Any:
    return _work(task)
