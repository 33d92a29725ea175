"""A command whose ``--help`` lists its options in panels."""

from typing import Any

from typer.core import TyperCommand

from transduce.cli.options import HELP, PANELS


class Command(TyperCommand):
    """A command that lists the panels of its options in the order of `PANELS`, and ``--help`` at the end."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help text with its paragraphs wrapped to the terminal, not to the source code."""
        paragraphs = (self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, sorted by panel; flags are shown without a type."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return sorted(parameters, key=_position)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the ``--help`` option, in a panel of its own."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel = HELP
        return option


def _position(parameter: Any) -> int:
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) + 1 if panel in PANELS else 0
