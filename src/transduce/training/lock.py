"""One run folder, one process that trains in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import TrainingError

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While this lasts, no other process of this machine may train there; a killed one leaves no trace."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
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
        yield
