"""One run folder, one process that trains in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import TrainingError

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While this lasts, no other process of this machine may train there; a killed one leaves no trace.

    If it ends with an error and nothing was written, a folder that was not there before is gone again.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise TrainingError(f"cannot write {folder}: {error.strerror}", "choose another --out") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"another process is training in {folder}", "wait until it ends, or choose another --out"
            ) from None
        except OSError:  # some network file systems have no locks
            pass
        try:
            yield
        except BaseException:
            if new and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                folder.rmdir()
            raise
