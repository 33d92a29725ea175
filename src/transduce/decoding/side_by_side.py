"""Several batches at a time: a process for each core, each on one thread.

Steps of decoding are small: two threads in one step wait for each other more than they compute. A forked
process has the model at no cost.
"""

import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from transduce.errors import TransduceError
from transduce.machine import holding_signals

Task = TypeVar("Task")
Result = TypeVar("Result")

_work: Callable[[Any], Any]  # in a forked process, what it is there for


@contextmanager
def side_by_side(
    work: Callable[[Task], Result], *, most: int | None = None
) -> Iterator[Callable[[Sequence[Task]], list[Result]]]:
    """Gives a function of tasks that is ``[work(task) for task in tasks]``, on several cores.

    There are as many processes as torch has threads, or at most ``most``. They begin when there is more than
    one task, with all that ``work`` knows by then; what it changes is lost.
    """
    count = min(torch.get_num_threads(), most or torch.get_num_threads())
    if count < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield lambda tasks: [work(task) for task in tasks]
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(work,)) as pool:

        def all_of(tasks: Sequence[Task]) -> list[Result]:
            if len(tasks) < 2:
                return [work(task) for task in tasks]
            try:
                with holding_signals():
                    futures = [pool.submit(_call, task) for task in tasks]  # the processes begin here
                return [future.result() for future in futures]
            except BrokenProcessPool as error:
                raise TransduceError(
                    "a process was ended from outside, perhaps for want of memory",
                    "set OMP_NUM_THREADS=1: there is one process then",
                ) from error
            except BaseException:  # what is not begun yet is not worth waiting for
                pool.shutdown(wait=False, cancel_futures=True)
                raise

        yield all_of


def _begin(work: Callable[[Any], Any]) -> None:
    global _work  # noqa: PLW0603 (there is one for each process)
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no last words when the user interrupts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    torch.set_num_threads(1)
    gc.freeze()  # what there is stays: to look for garbage in it would cost time, and memory that is shared
    # Another thread of the first process may have been writing when this one was forked: to flush these would
    # be to wait for it.
    sys.stdout = sys.stderr = None
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    """However that one ends."""
    first = multiprocessing.parent_process()
    if first:
        multiprocessing.connection.wait([first.sentinel])
        os._exit(1)


def _call(task: Any) -> Any:
    return _work(task)
