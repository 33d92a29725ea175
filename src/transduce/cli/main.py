"""The ``transduce`` command."""

from typing import Annotated

import typer

from transduce.cli import commands
from transduce.cli.command import Group
from transduce.cli.errors import run

_EXAMPLE = "Example: transduce train --source train.en --target train.de --out runs/en-de"
app = typer.Typer(
    cls=Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from transduce.engine.precision import describe_engine

        typer.echo(f"transduce {version('transduce')}")
        typer.echo(f"torch {version('torch')}, {describe_engine()}")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog=_EXAMPLE)
def transduce(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version and the engine in use, and exit.",
        ),
    ] = False,
) -> None:
    """Train, use and understand sequence-to-sequence Transformers."""
    if context.invoked_subcommand is None:
        context.get_help()  # typer prints it


def main() -> None:
    """Run the command line."""
    run(lambda: app(prog_name="transduce", standalone_mode=False))
