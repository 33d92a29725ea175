"""A lock on a run folder: only one process trains in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import TrainingError, reason_of
from transduce.files import require_own_file

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine from training in ``folder``; create it if it is missing.

    The operating system releases the lock when the process ends, however it ends. If an error occurs and
    nothing else is in the folder, what was created here is removed again: the lock, and the folder.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    is_new, was_locked = not folder.exists(), (folder / LOCK).exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_own_file(folder / LOCK)
        file = (folder / LOCK).open("a")  # its content does not matter, and is kept
    except OSError as error:
        raise TrainingError(f"cannot write {folder}: {reason_of(error)}", "choose another --out") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"another process is training in {folder}", "wait until it ends, or choose another --out"
            ) from None
        except OSError:  # some network file systems do not support locks
            pass
        try:
            yield
        except BaseException:
            if not was_locked and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                if is_new:
                    folder.rmdir()
            raise
