"""Which server processes are alive, so that work of one that was killed is not waited for."""

import secrets
from contextlib import suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Alive:
    """A locked file that says that this process lives: the system unlocks it whatever ends the process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.name = folder, secrets.token_hex(8)
        self._remove_dead()
        self._file: IO[bytes] = (folder / self.name).open("wb")
        if fcntl is not None:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(self._file, fcntl.LOCK_EX)

    def is_alive(self, name: str) -> bool:
        """Return whether the process of this name lives; where locks are missing, it is believed to."""
        if name == self.name or fcntl is None:
            return True
        try:
            with (self._folder / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        except FileNotFoundError:
            return False
        except OSError:  # it is locked
            return True

    def close(self) -> None:
        """Say that this process is about to end."""
        self._file.close()
        (self._folder / self.name).unlink(missing_ok=True)

    def _remove_dead(self) -> None:
        for path in self._folder.iterdir():
            if not self.is_alive(path.name):
                path.unlink(missing_ok=True)
