"""The claims as a table and as JSON."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.paper.claim import Claim

TITLE = 'Claims of "Attention Is All You Need", and their measurements'
MIN_TABLE_WIDTH = 110  # columns; a narrower terminal gets a list instead


def measure(claims: Iterable[Claim], console: Console) -> list[Claim]:
    """Measure the claims, and show the progress on the console."""
    measured: list[Claim] = []
    with console.status("measuring ...") as status:
        for claim in claims:
            measured.append(claim)
            status.update(f"measuring ... {len(measured)} claims done, section {claim.section}")
    return measured


def print_claims(claims: list[Claim], console: Console) -> None:
    """Print a table, or two lines per claim on a narrow terminal; then the claims that fail, and why."""
    if console.width < MIN_TABLE_WIDTH:
        _print_list(claims, console)
    else:
        console.print(_table(claims))
    console.print(_summary(claims), highlight=False)
    for claim in claims:
        if not claim.holds:
            reason = claim.known_exception or "unexpected; please report this output as an issue"
            console.print(Text(f"* {claim.section}, {claim.claim}: {reason}"), style="dim")


def to_json(claims: Iterable[Claim]) -> str:
    """Return a list of objects with section, claim, paper, measured, holds and known_exception."""
    return json.dumps([asdict(claim) for claim in claims], indent=2, ensure_ascii=False)


def _table(claims: list[Claim]) -> Table:
    table = Table(title=TITLE, title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("section", no_wrap=True)
    for column in ("claim", "paper", "measured"):
        table.add_column(column, overflow="fold")
    table.add_column("holds", no_wrap=True)
    for claim in claims:
        table.add_row(claim.section, claim.claim, claim.paper, claim.measured, _verdict(claim))
    return table


def _print_list(claims: list[Claim], console: Console) -> None:
    console.print(TITLE, style="bold")
    for claim in claims:
        console.print(_verdict(claim), Text(f"{claim.section}: {claim.claim}"))
        console.print(Text(f"    paper: {claim.paper} | measured: {claim.measured}", style="dim"))


def _verdict(claim: Claim) -> Text:
    if claim.holds:
        return Text("yes", style="green")
    return Text("NO*", style="bold red") if claim.is_unexpected else Text("no*", style="yellow")


def _summary(claims: list[Claim]) -> str:
    hold = sum(claim.holds for claim in claims)
    unexpected = sum(claim.is_unexpected for claim in claims)
    known = len(claims) - hold - unexpected
    return f"{hold} of {len(claims)} claims hold; {known} known exceptions, {unexpected} unexpected failures"
