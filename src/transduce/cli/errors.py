"""Errors on the command line: one line on standard error and an exit code, never a traceback."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from transduce.errors import TransduceError, is_out_of_memory, printable, reason_of, remedy_for

# Depending on its version, typer contains its own copy of click or imports the installed one.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_INTERRUPTED = 130


def run(command: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit. A user's mistake is reported in one line, with exit code 2."""
    if sys.stderr is None:  # closed by the shell, with `2>&-`
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (open until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # print ? for characters that the terminal cannot show
            stream.reconfigure(errors="replace")
    try:
        code = command() or 0
        if sys.stdout:
            sys.stdout.flush()
    except TransduceError as error:
        _exit(2, str(error))
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context else "transduce"
        message = error.format_message()  # type: ignore[attr-defined]
        # typer reports invalid values in the words of pydantic.
        message = message.replace("Value error, ", "").replace("Input should", "it should")
        _exit(2, f"{message.rstrip('.')} (see: {name} --help)")
    except BrokenPipeError:  # the reading process, such as `head`, has ended
        _discard_output()
        _exit(1, None)
    except OSError as error:
        _discard_output()
        problem = f"cannot use {error.filename}" if error.filename else "cannot write the output"
        _exit(2, f"{problem}: {reason_of(error)}; {remedy_for(error)}")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _exit(2, "out of memory; give shorter lines, a smaller beam or a smaller model")
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    _exit(code, "interrupted" if code == _INTERRUPTED else None)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    say(f"warning: {message}", err=True)


def say(message: object, *, err: bool = False) -> None:
    """Print a line about the work, such as the path of a new file, with control characters escaped."""
    typer.echo(printable(str(message)), err=err)


def _discard_output() -> None:
    """Redirect standard output to nowhere: flushing its buffer at exit would fail again."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit(code: int, message: str | None) -> NoReturn:
    if message and sys.stderr:
        sys.stderr.write(f"error: {printable(message)}\n")
    sys.exit(code)
