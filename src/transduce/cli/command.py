"""Commands whose ``--help`` lists options in panels."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

from transduce.cli.effects import check_effects
from transduce.cli.options import HELP, PANELS


class Command(TyperCommand):
    """A command that lists the panels of its options in the order of `PANELS`, and ``--help`` at the end."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Wrap the paragraphs of the help text to the terminal, not as in the source code."""
        paragraphs = (self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless an option was given that would have no effect."""
        check_effects(ctx)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, sorted by panel."""
        return sorted(_flags_without_type(super().get_params(ctx)), key=_position)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the ``--help`` option, in a panel of its own."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel = HELP
        return option


class Group(TyperGroup):
    """A command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options."""
        return _flags_without_type(super().get_params(ctx))


def _flags_without_type(parameters: list[Any]) -> list[Any]:
    """Show no type after options that take no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _position(parameter: Any) -> int:
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) + 1 if panel in PANELS else 0
