"""A command that has commands of its own."""

from collections.abc import Callable

import typer


def group(what: str, example: str, **commands: Callable[..., None]) -> typer.Typer:
    """By itself, it shows what there is."""
    app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)
    for name, run in commands.items():
        app.command(name)(run)

    @app.callback(invoke_without_command=True, help=what, epilog=f"Example: {example}")
    def show(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app
