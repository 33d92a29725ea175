"""``transduce paper``."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import OUTPUT


def paper(
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list instead of the table.", rich_help_panel=OUTPUT)
    ] = False,
    plots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write figures as PNG images into this folder.", rich_help_panel=OUTPUT
        ),
    ] = None,
) -> None:
    """Check the claims of "Attention Is All You Need" by measuring them, in a few seconds.

    The exit code is 1 if a claim fails unexpectedly.

    Example: transduce paper --plots figures
    """
    from rich.console import Console

    from transduce.paper.claim_table import measure, print_claims, to_json
    from transduce.paper.claims import all_claims
    from transduce.paper.plots import write_plots
    from transduce.terminal import output_console

    messages = Console(stderr=True)
    if plots is not None:
        for path in write_plots(plots):
            messages.print(f"wrote {path}", highlight=False, soft_wrap=True)
    claims = measure(all_claims(), messages)
    if json:
        typer.echo(to_json(claims))
    else:
        print_claims(claims, output_console())
    if any(claim.is_unexpected for claim in claims):
        raise typer.Exit(1)
