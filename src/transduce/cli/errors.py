"""What becomes of errors on the command line: one line, an exit code, never a traceback."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from transduce.errors import TransduceError

# typer carries a click of its own, or uses the installed one, depending on its version
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_INTERRUPTED = 130


def run(command: Callable[[], int | None]) -> NoReturn:
    """Run a command and leave. A user's mistake ends with one line and exit code 2."""
    if sys.stderr is None:  # as `2>&-` leaves it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (until the end)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show √ shows ? instead
            stream.reconfigure(errors="replace")
    try:
        code = command() or 0
        if sys.stdout:
            sys.stdout.flush()
    except TransduceError as error:
        _leave(2, str(error))
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context else "transduce"
        said = error.format_message()  # type: ignore[attr-defined]
        _leave(2, f"{said.rstrip('.')} (see: {name} --help)")
    except BrokenPipeError:  # the reader, `head` for one, has had enough
        _discard_output()
        _leave(1, None)
    except OSError as error:
        _discard_output()
        _leave(2, f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    _leave(code, "interrupted" if code == _INTERRUPTED else None)


def _discard_output() -> None:
    """What is still unwritten would fail again at exit."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(code: int, message: str | None) -> NoReturn:
    if message and sys.stderr:
        sys.stderr.write(f"error: {message}\n")
    sys.exit(code)
