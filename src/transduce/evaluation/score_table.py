"""An evaluation, for people."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from transduce.errors import DataError
from transduce.evaluation.evaluate import Evaluation
from transduce.evaluation.measurement import Measurement

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact": "exact", "per": "PER", "wer": "WER"}
BETTER = {"bleu": "↑", "chrf": "↑", "ter": "↓", "exact": "↑", "per": "↓", "wer": "↓"}


def result_console() -> Console:
    """Standard output; that nobody would see a result is better known before the work."""
    if sys.stdout is None:  # as `>&-` leaves it
        raise DataError("standard output is closed", "leave it open, or send it to a file")
    return Console()


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """A table; under it, what the scores depend on."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    compared = evaluation.comparisons
    if evaluation.other is not None:
        say(f"A: {evaluation.system}\nB: {evaluation.other}")
    table = Table(box=box.SIMPLE_HEAD)
    columns = ("A", "95%", "B", "95%", "B − A", "p") if compared else ("score", "95%")
    for column in ("", *columns):
        table.add_column(column, overflow="fold", justify="right" if column else "left")
    for one in compared:
        cells = *_cells(one.one), *_cells(one.other), f"{one.difference:+.2f}", f"{one.p:.3f}"
        table.add_row(_name(one.one), *cells)
    if not compared:
        for measurement in evaluation.measurements:
            table.add_row(_name(measurement), *_cells(measurement))
    console.print(table)
    for measurement in evaluation.measurements:
        say(f"{NAMES[measurement.metric]}: {measurement.signature}")
    if evaluation.search is not None:
        say("search: " + "|".join(f"{name}:{value}" for name, value in evaluation.search.items()))
    say(f"{evaluation.lines:,} lines; ↑ higher is better, ↓ lower is better")


def _name(measurement: Measurement) -> str:
    return f"{NAMES[measurement.metric]} {BETTER[measurement.metric]}"


def _cells(measurement: Measurement) -> tuple[str, str]:
    return f"{measurement.score:.2f}", f"{measurement.low:.1f}–{measurement.high:.1f}"
