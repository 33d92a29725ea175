"""The report of a corpus check as text: a table on a terminal, whole lines elsewhere."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transduce.data.findings import Finding, Report
from transduce.errors import printable
from transduce.terminal import print_line


def print_report(report: Report, console: Console) -> None:
    """Print what was found, with examples and a remedy for each finding."""
    if not report.pairs and not report.findings:
        print_line(console, "the files contain no lines; give files with text")
        return
    if not report.findings:
        print_line(console, f"{report.pairs:,} pairs, no problems found")
        return
    if console.is_terminal:
        console.print(_table(report))
    else:
        _print_lines(report, console)
    if any(report.unseen_characters.values()):
        shares = (f"{100 * share:.2g}% of {name}" for name, share in report.unseen_characters.items())
        print_line(console, f"characters never seen in training: {', '.join(shares)}")
    dropped = f"; {report.dropped:,} of them are left out of training" if report.dropped else ""
    print_line(console, f"{report.pairs:,} pairs examined{dropped}")


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("count", "problem", "remedy"):
        table.add_column(column, overflow="fold", justify="right" if column == "count" else "left")
    for finding in report.findings.values():
        problem = "\n".join([finding.problem, *(f"  {example}" for example in _examples(finding))])
        table.add_row(f"{finding.count:,}", escape(problem), escape(finding.remedy))
    return table


def _print_lines(report: Report, console: Console) -> None:
    """Print every finding in lines that are never broken or cut, for files and other programs."""
    for finding in report.findings.values():
        print_line(console, f"{finding.problem}: {finding.count:,}; {finding.remedy}")
        for example in _examples(finding):
            print_line(console, f"  {example}")


def _examples(finding: Finding) -> list[str]:
    return [
        f"{printable(example.where)}, line {example.line:,}"
        + (f": {_visible(example.text)}" if example.text else "")
        for example in finding.examples
    ]


def _visible(text: str) -> str:
    """Return a text with control characters and unusual spaces as escapes."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
