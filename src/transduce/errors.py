"""Errors that a user can correct: one line that says what is wrong, where, and what to do."""

import errno
import re

# What a terminal would obey instead of showing it: control characters, and marks that reverse text.
_ESCAPED = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *(*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F),
        *(*range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    )
}
_LINE_ENDS = re.compile(r"\s*[\r\n]\s*")
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.EROFS: "choose a place that can be written",
    errno.EEXIST: "choose another name, or remove what is there",
    errno.ENOTDIR: "choose another path: a part of this one is a file",
    errno.EISDIR: "give a file, not a folder",
    errno.ELOOP: "choose another path: this one is a loop of symbolic links",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free disk space, or choose another place",
    errno.EDQUOT: "free disk space, or choose another place",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.EINVAL: "choose another path",
}
# Where a new file or folder could not be written
_WRITING = {
    errno.ENOENT: "choose another place: nothing can be created in this one",
    errno.EACCES: "choose another place, or change the permissions of this one",
    errno.EPERM: "choose another place, or change the permissions of this one",
}


def printable(text: str) -> str:
    """Return a text in which control characters are escaped, so that a terminal shows all of it."""
    return text.translate(_ESCAPED)


def reason_of(error: OSError) -> str:
    """Return what the operating system says about an error, without the name of the file."""
    return error.strerror or str(error) or type(error).__name__


def remedy_for(error: OSError) -> str:
    """Return what a user can do about an error of the operating system."""
    return _REMEDIES.get(error.errno or 0, "check the file, or choose another one")


def remedy_for_writing(error: Exception) -> str:
    """Return what a user can do if a file or folder cannot be written; libraries may hide the reason."""
    number = getattr(error, "errno", None) or 0
    return (_REMEDIES | _WRITING).get(number, "free disk space, or choose another place")


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether torch, NumPy or Python raised this error because memory was exhausted."""
    message = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or "can't allocate memory" in message
        or "out of memory" in message
        or "numel: integer multiplication overflow" in message
    )


class TransduceError(Exception):
    """An error that the user can correct. The command line prints it as one line and exits with code 2."""

    def __init__(self, problem: str, remedy: str) -> None:
        # Messages of other libraries may be part of the problem, and may have several lines.
        super().__init__(printable(_LINE_ENDS.sub(" ", f"{problem}; {remedy}".strip())))
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["TransduceError"], tuple[str, str]]:
        """Support pickling, so that worker processes can pass the error on."""
        return type(self), (self.problem, self.remedy)


class ConfigError(TransduceError):
    """An invalid configuration file, option or argument."""


class ArtifactError(TransduceError):
    """A model folder that cannot be read or written."""


class DependencyError(TransduceError):
    """An optional package that is not installed."""


class DataError(TransduceError):
    """Text files, images or tokenizers that cannot be used."""


class CheckpointError(TransduceError):
    """A checkpoint that cannot be read or written."""


class TrainingError(TransduceError):
    """A run that cannot start or continue."""


def require_matplotlib(what: str) -> None:
    """Raise a one-line error if matplotlib is not installed or does not work; ``what`` needs it (plural)."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DependencyError(
            f"{what} need matplotlib, which is not installed", "run: pip install matplotlib"
        ) from None
    except ValueError as error:
        raise DependencyError(
            f"matplotlib cannot be imported: {error}",
            "set MPLBACKEND, or backend in matplotlibrc, to a backend that is installed",
        ) from None


def require_babel() -> None:
    """Raise a one-line error if Babel, which the bundled tasks format dates and numbers with, is missing."""
    try:
        import babel  # noqa: F401
    except ImportError:
        raise DependencyError(
            "the task needs Babel, which is not installed", "run: pip install Babel"
        ) from None
