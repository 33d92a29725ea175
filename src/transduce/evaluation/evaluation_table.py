"""An evaluation as a table."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from transduce.errors import DataError, printable
from transduce.evaluation.evaluation import Evaluation
from transduce.evaluation.measurement import Measurement
from transduce.evaluation.metrics import METRICS
from transduce.terminal import output_console, print_line


def require_output() -> None:
    """Refuse a closed standard output before the work rather than after it."""
    if sys.stdout is None:  # closed by the shell with `>&-`
        raise DataError("standard output is closed", "send it to a file: > scores.txt")


def print_result(evaluation: Evaluation, *, as_json: bool) -> None:
    """Print a table or JSON on standard output, warnings on standard error; raise the output file's error."""
    if as_json:
        sys.stdout.write(f"{evaluation.to_json()}\n")
    else:
        print_evaluation(evaluation, output_console())
    for warning in evaluation.warnings:
        sys.stderr.write(f"warning: {printable(warning)}\n")
    if evaluation.output_error:
        raise evaluation.output_error


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print a table of scores, and the signatures and settings that they depend on."""
    comparisons = evaluation.comparisons
    if evaluation.compared_system is not None:
        print_line(console, f"A: {evaluation.system}\nB: {evaluation.compared_system}")
    table = Table(box=box.SIMPLE_HEAD)
    columns = ("A", "95%", "B", "95%", "B − A", "p") if comparisons else ("score", "95% interval")
    for column in ("", *columns):
        table.add_column(column, overflow="fold", justify="right" if column else "left")
    for pair in comparisons:
        cells = *_cells(pair.first), *_cells(pair.second), f"{pair.difference:+.2f}", f"{pair.p:.3f}"
        table.add_row(_label(pair.first), *cells)
    if not comparisons:
        for measurement in evaluation.measurements:
            table.add_row(_label(measurement), *_cells(measurement))
    console.print(table)
    for measurement in evaluation.measurements:
        print_line(console, f"{METRICS[measurement.metric].label}: {measurement.signature}")
    if evaluation.search is not None:
        settings = "|".join(f"{name}:{value}" for name, value in evaluation.search.items())
        print_line(console, f"search: {settings}")
    print_line(console, f"{evaluation.lines:,} lines; ↑ higher is better, ↓ lower is better")


def _label(measurement: Measurement) -> str:
    metric = METRICS[measurement.metric]
    return f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"


def _cells(measurement: Measurement) -> tuple[str, str]:
    return f"{measurement.score:.2f}", f"{measurement.low:.1f}–{measurement.high:.1f}"
