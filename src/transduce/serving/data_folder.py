"""The folder in which a server keeps glossaries and documents."""

import tempfile
from pathlib import Path

from transduce.errors import ConfigError, reason_of, remedy_for_writing


def prepare_data(folder: Path) -> Path:
    """Make the folder if necessary; one that cannot be written is a `ConfigError`.

    What clients store is for nobody else on the machine.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        for name in ("glossaries", "documents", "workers"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot write to {folder}: {reason}", remedy_for_writing(error)) from error
    return folder
