"""What a user can do wrong, said plainly: one line that says what, where, and what to do."""


class TransduceError(Exception):
    """A mistake the user can mend. The command line prints its one line and exits with 2."""

    def __init__(self, problem: str, remedy: str) -> None:
        # Other programs' messages end up in here too: whatever they hold, one line comes out.
        super().__init__(" ".join(f"{problem}; {remedy}".split()))
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["TransduceError"], tuple[str, str]]:
        """So that it can cross from one process to another."""
        return type(self), (self.problem, self.remedy)


class ConfigError(TransduceError):
    """A configuration file or option that cannot be used."""


class ArtifactError(TransduceError):
    """A model folder that cannot be read or written."""


class DependencyError(TransduceError):
    """An optional package that is not installed."""


class DataError(TransduceError):
    """Text files or tokenizers that cannot be used."""


class CheckpointError(TransduceError):
    """A checkpoint that cannot be written or read."""


class TrainingError(TransduceError):
    """A run that cannot go on."""


def require_matplotlib(what: str) -> None:
    """Say in one line what is missing, if it is."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DependencyError(
            f"{what} need matplotlib, which is not installed", "run: pip install 'transduce[plot]'"
        ) from None
    except ValueError as error:
        raise DependencyError(
            f"matplotlib does not start: {error}", "check MPLBACKEND and matplotlibrc"
        ) from None
