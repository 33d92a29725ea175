"""What the machine needs to be told: to keep memory, and not to use instructions it does not have."""

import ctypes
import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_TOO_LONG = 10  # seconds, for one small product


@cache
def lacks_announced_instructions() -> bool:
    """Call this before anything is computed.

    Some virtual machines announce the matrix instructions of newer processors (AMX), and end whoever uses
    them. Where they are announced, a copy of this process tries them first; if it is ended, oneDNN, which
    torch computes products of bfloat16 numbers with, is told to do without.
    """
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not announces("amx_tile"):
        return False
    import torch  # noqa: F401 (the copy has no time for it)

    ended = _ends_a_copy(_bfloat16_product)
    if ended:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    return ended


@cache
def uses_lacking_instructions() -> bool:
    """Whether oneDNN would use them all the same: it listens only before its first use, and that was
    earlier.
    """
    return lacks_announced_instructions() and _ends_a_copy(_bfloat16_product)


def _bfloat16_product() -> None:
    import torch

    torch.set_num_threads(1)  # the others were not copied
    x = torch.ones(64, 64, dtype=torch.bfloat16)
    x @ x


def _ends_a_copy(trial: Callable[[], None]) -> bool:
    """Whether a copy of this process, with all that it has set up so far, does not survive this."""
    with warnings.catch_warnings(), holding_signals():
        warnings.simplefilter("ignore", DeprecationWarning)  # about copies that lack the other threads
        copy = os.fork()
    if copy == 0:
        failed = 1
        try:
            import resource  # not on every system, but where there is something to try

            faulthandler.disable()  # its end is nobody's news
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_TOO_LONG)
            trial()
            failed = 0
        finally:
            os._exit(failed)
    return os.waitpid(copy, 0)[1] != 0


@contextmanager
def holding_signals() -> Iterator[None]:
    """Interruptions wait until the end of this: Python drops those that come while it forks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def announces(feature: str) -> bool:
    """Whether the processor says that it has this, by its name in /proc/cpuinfo."""
    with suppress(OSError):
        return feature in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return False


# From malloc.h and mman.h
_TRIM_THRESHOLD, _MMAP_MAX, _NEVER = -1, -4, -1
_HUGE_PAGES, _HUGE_PAGE = 14, 2 << 20
_MOST = 4 << 30


def keep_memory() -> None:
    """Ask glibc to keep freed memory for the next step, in huge pages; elsewhere there is nothing to do.

    Every step makes and drops the same large arrays. By default the C library gives each of them back to the
    system and gets it anew, page by page, which takes longer than computing what is in it.

    It holds for the whole process, and for good.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError, ValueError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (other C libraries do not have it)
        library.mallopt(_TRIM_THRESHOLD, _NEVER)
        library.mallopt(_MMAP_MAX, 0)
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        _prefer_huge_pages(library, min(_MOST, physical // 2))


def _prefer_huge_pages(library: ctypes.CDLL, size: int) -> None:
    """Say so of the next ``size`` bytes of the heap, which stay empty until somebody needs them."""
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    begin = library.malloc(size)
    if begin:
        aligned = -(-begin // _HUGE_PAGE) * _HUGE_PAGE
        library.madvise(aligned, (begin + size - aligned) // _HUGE_PAGE * _HUGE_PAGE, _HUGE_PAGES)
        library.free(begin)
