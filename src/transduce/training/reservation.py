"""Disk space that a run reserves for its next checkpoint, until it is written."""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from transduce.errors import TrainingError, reason_of, remedy_for

FILE = ".reserved"
_FULL = {errno.ENOSPC, errno.EDQUOT}


class DiskReservation:
    """A hidden file that occupies disk space until it is needed.

    A process that is killed leaves the file behind, and the resumed run takes it over. On file systems that
    cannot reserve space, only the free space is checked.
    """

    def __init__(self, folder: Path, size: int) -> None:
        """Reserve ``size`` bytes on the disk of ``folder``, which is created if it is missing."""
        self.path, self.size = folder / FILE, size
        self._is_taken = False

    def take(self) -> None:
        """Reserve the space, unless it is reserved already; too little of it is a `TrainingError`."""
        if self._is_taken:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                self._allocate(handle)
            finally:
                os.close(handle)
        except OSError as error:
            self.release()
            if error.errno in _FULL:
                raise self._too_little_space() from error
            raise TrainingError(
                f"cannot write {self.path.parent}: {reason_of(error)}", remedy_for(error)
            ) from error
        self._is_taken = True

    def release(self) -> None:
        """Give the space back, if it is reserved."""
        self._is_taken = False
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def spare(self, size: int) -> None:
        """Give back this much of the reserved space until it is taken anew."""
        if self._is_taken:
            with suppress(OSError):
                os.truncate(self.path, min(self.path.stat().st_size, self.size - size))

    def _allocate(self, handle: int) -> None:
        try:
            if os.fstat(handle).st_size > self.size:  # left by a run with other settings
                os.ftruncate(handle, self.size)
            os.posix_fallocate(handle, 0, self.size)
        except (OSError, AttributeError) as error:  # AttributeError: macOS and Windows
            if isinstance(error, OSError) and error.errno in _FULL:
                raise
            os.ftruncate(handle, 0)
            if self._free() < self.size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error

    def _free(self) -> int:
        return shutil.disk_usage(self.path.parent).free

    def _too_little_space(self) -> TrainingError:
        return TrainingError(
            f"{self.path.parent} has too little disk space for the next checkpoint: "
            f"{_megabytes(self.size)} are needed, {_megabytes(self._free())} are free",
            "free some disk space, then continue with --resume",
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
