"""The doctor's report, for people."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transduce.data.doctor import Finding, Report


def print_report(report: Report, console: Console) -> None:
    """A table of what was found, with examples and a remedy for each."""
    if not report.pairs and not report.findings:
        console.print("there are no lines in the files: give files with text", highlight=False)
        return
    if not report.findings:
        console.print(f"{report.pairs:,} pairs, nothing to complain about", highlight=False)
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("found", "what", "what to do"):
        table.add_column(column, overflow="fold", justify="right" if column == "found" else "left")
    for finding in report.findings:
        table.add_row(f"{finding.count:,}", escape(_what(finding)), finding.remedy)
    console.print(table)
    if any(report.unseen_characters.values()):
        shares = (f"{100 * share:.2g}% of {name}" for name, share in report.unseen_characters.items())
        console.print(f"characters never seen in training: {', '.join(shares)}", highlight=False)
    left = f"; training leaves {report.dropped:,} of them out" if report.dropped else ""
    console.print(f"{report.pairs:,} pairs looked at{left}", highlight=False)


def _what(finding: Finding) -> str:
    examples = [
        f"  {example.where}, line {example.line:,}" + (f": {_visible(example.text)}" if example.text else "")
        for example in finding.examples
    ]
    return "\n".join([finding.problem, *examples])


def _visible(text: str) -> str:
    """Control characters and odd spaces as their escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
