"""The log of failures: what happened and where, but nothing that a client sent."""

import sys
import traceback

from transduce.errors import ArtifactError, ConfigError, printable

_FRAMES = 3  # of the traceback, innermost last


def log(message: str) -> None:
    """Write a line to standard error."""
    print(printable(message), file=sys.stderr, flush=True)  # noqa: T201


def log_failure(what: str, error: BaseException) -> None:
    """Write one line about an error.

    Messages of most errors may quote a text, so that only those about files and settings are written; of
    others, the type and the place must do.
    """
    told = isinstance(error, (OSError, ArtifactError, ConfigError))
    where = " < ".join(
        f"{frame.filename.rpartition('transduce/')[2]}:{frame.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    )
    log(f"error: {what}: {type(error).__name__}{f': {error}' if told else ''} ({where or 'no traceback'})")
