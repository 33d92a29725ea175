"""``transduce``: the commands, and what becomes of errors."""

import os
import sys
from typing import Annotated

import typer

from transduce.cli import paper
from transduce.errors import TransduceError

# typer carries a click of its own, or uses the installed one, depending on its version
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("paper")(paper.paper)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"transduce {version('transduce')}")
        raise typer.Exit


@app.callback(epilog="Example: transduce paper --plots figures")
def transduce(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train, understand and serve your own sequence-to-sequence Transformers."""


def main() -> None:
    """Run a command. A user's mistake ends with one line and exit code 2, never a traceback."""
    try:
        sys.exit(app(prog_name="transduce", standalone_mode=False))
    except TransduceError as error:
        _fail(str(error), 2)
    except _UsageError as error:
        if message := str(error):
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "transduce"
            _fail(f"{message.rstrip('.')}; see: {command} --help", 2)
        # No command was given: typer has shown the help.
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader, `head` for one, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(line: str, code: int) -> None:
    sys.stderr.write(f"error: {line}\n")
    sys.exit(code)
