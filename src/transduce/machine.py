"""The processor and the memory: faulty CPU instructions, the memory allocator."""

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_TIME_LIMIT = 10  # seconds, for one small matrix product


@cache
def avoid_broken_amx() -> bool:
    """Return whether the CPU reports matrix instructions (AMX) that crash; tell oneDNN not to use them.

    Some virtual machines report AMX but kill the processes that use it. Where AMX is reported, a forked copy
    of this process tries it first. If the copy dies, oneDNN, which computes torch's bfloat16 matrix products,
    is limited to AVX-512 by an environment variable. oneDNN reads that variable only once, so call this
    function before anything is computed.
    """
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu_reports("amx_tile"):
        return False
    import torch  # noqa: F401 (imported here, so that the copy does not spend its time on it)

    is_broken = _kills_a_fork(_bfloat16_product)
    if is_broken:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    return is_broken


@cache
def would_use_broken_amx() -> bool:
    """Return whether oneDNN still uses those instructions, because it read the variable too early."""
    return avoid_broken_amx() and _kills_a_fork(_bfloat16_product)


def _bfloat16_product() -> None:
    import torch

    torch.set_num_threads(1)  # fork copies one thread only
    x = torch.ones(64, 64, dtype=torch.bfloat16)
    x @ x


def _kills_a_fork(trial: Callable[[], None]) -> bool:
    """Return whether a forked copy of this process, in its present state, does not survive ``trial``."""
    with warnings.catch_warnings(), delayed_signals():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking a multi-threaded process
        copy = os.fork()
    if copy == 0:
        failed = 1
        try:
            import resource  # not available on Windows, where this is never reached

            faulthandler.disable()  # its crash is expected
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_TIME_LIMIT)
            trial()
            failed = 0
        finally:
            os._exit(failed)
    return os.waitpid(copy, 0)[1] != 0


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the end of the block: Python drops those that arrive during a fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cpu_reports(feature: str) -> bool:
    """Return whether the processor reports a feature, by its name in ``/proc/cpuinfo``."""
    with suppress(OSError):
        return feature in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return False


def physical_memory() -> int | None:
    """Return the size of the memory in bytes, of the machine or of the container, if it is known."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # ValueError: there is no limit ("max")
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(sizes, default=None)


# Constants of malloc.h and mman.h
_TRIM_THRESHOLD, _MMAP_MAX, _NEVER = -1, -4, -1
_MADV_HUGEPAGE, _HUGE_PAGE = 14, 2 << 20
_HEAP_LIMIT = 4 << 30  # bytes of the heap for which huge pages are requested


def keep_memory() -> None:
    """Make glibc keep freed memory for reuse, in huge pages; with other C libraries, leave memory alone.

    Every training step allocates and frees the same large arrays. By default glibc returns each of them to
    the system and requests it again, page by page, which takes longer than the computation itself.

    This affects the whole process and cannot be undone.
    """
    _skip_modules()
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError, ValueError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (fails with other C libraries)
        library.mallopt(_TRIM_THRESHOLD, _NEVER)
        library.mallopt(_MMAP_MAX, 0)
        _prefer_huge_pages(library, min(_HEAP_LIMIT, (physical_memory() or 0) // 2))


@cache
def _skip_modules() -> None:
    """Let the garbage collector no longer look at what exists now: modules, classes and functions."""
    gc.collect()
    gc.freeze()


def _prefer_huge_pages(library: ctypes.CDLL, size: int) -> None:
    """Request huge pages for the next ``size`` bytes of the heap; memory is used when it is written to."""
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    begin = library.malloc(size)
    if begin:
        aligned = -(-begin // _HUGE_PAGE) * _HUGE_PAGE
        library.madvise(aligned, (begin + size - aligned) // _HUGE_PAGE * _HUGE_PAGE, _MADV_HUGEPAGE)
        library.free(begin)
