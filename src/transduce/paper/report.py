"""The claims as a table to read and as JSON to process."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.paper.claim import Claim


def wide_console() -> Console:
    """Standard output; where that is a file or a pipe, wide enough for a line a claim."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def print_table(claims: Iterable[Claim], console: Console) -> list[Claim]:
    """Measure the claims, then show them; gives them all."""
    table = Table(title="Attention Is All You Need, measured here", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("section", no_wrap=True)
    for column in ("claim", "paper", "measured"):
        table.add_column(column)
    table.add_column("holds", no_wrap=True)
    shown: list[Claim] = []
    with console.status("measuring ...") as status:
        for claim in claims:
            shown.append(claim)
            table.add_row(claim.section, claim.claim, claim.paper, claim.measured, _verdict(claim))
            status.update(f"measuring ... {len(shown)} claims so far, at {claim.section}")
    console.print(table)
    console.print(_summary(shown))
    for claim in shown:
        if not claim.holds:
            console.print(
                Text(f"* {claim.section}, {claim.claim}: {claim.known_exception or 'unexpected'}"),
                style="dim",
            )
    return shown


def to_json(claims: Iterable[Claim]) -> str:
    """A list of objects: section, claim, paper, measured, holds, known_exception."""
    return json.dumps([asdict(claim) for claim in claims], indent=2, ensure_ascii=False)


def _verdict(claim: Claim) -> Text:
    if claim.holds:
        return Text("yes", style="green")
    return Text("NO", style="bold red") if claim.surprising else Text("no*", style="yellow")


def _summary(claims: list[Claim]) -> str:
    hold = sum(claim.holds for claim in claims)
    known = sum(bool(claim.known_exception) and not claim.holds for claim in claims)
    unexpected = len(claims) - hold - known
    return f"{len(claims)} claims: {hold} hold, {known} known exceptions, {unexpected} unexpected failures"
