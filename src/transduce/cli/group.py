"""A command with subcommands, such as ``transduce lm``."""

from collections.abc import Callable, Mapping

import typer

from transduce.cli.command import Command, Group


def group(description: str, example: str, commands: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """Return a command that has these subcommands and, called without one, shows its help."""
    app = typer.Typer(cls=Group, rich_markup_mode="rich", no_args_is_help=False)
    for name, command in commands.items():
        app.command(name, cls=Command)(command)

    @app.callback(invoke_without_command=True, help=description, epilog=f"Example: {example}")
    def show(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            context.get_help()  # typer prints it

    return app
