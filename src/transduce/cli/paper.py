"""``transduce paper``."""

from pathlib import Path
from typing import Annotated

import typer


def paper(
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of the table.")] = False,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the paper's pictures as PNG into this folder.")
    ] = None,
) -> None:
    """Check the paper's claims: what it says, and what is measured here and now.

    Takes a few seconds. Exit code 1 if a claim fails unexpectedly, 2 if an option is wrong.

    Example: transduce paper --plots figures
    """
    from rich.console import Console

    from transduce.paper.claim_table import measure, print_claims, to_json, wide_console
    from transduce.paper.claims import all_claims
    from transduce.paper.plots import write_plots

    messages = Console(stderr=True)
    if plots is not None:
        for path in write_plots(plots):
            messages.print(f"wrote {path}", highlight=False, soft_wrap=True)
    claims = measure(all_claims(), messages)
    if json:
        typer.echo(to_json(claims))
    else:
        print_claims(claims, wide_console())
    if any(claim.surprising for claim in claims):
        raise typer.Exit(1)
