"""Errors that a user can correct: one line that says what is wrong, where, and what to do."""


class TransduceError(Exception):
    """An error that the user can correct. The command line prints it as one line and exits with code 2."""

    def __init__(self, problem: str, remedy: str) -> None:
        # Messages of other libraries may be part of the problem, and may have several lines.
        super().__init__(" ".join(f"{problem}; {remedy}".split()))
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
