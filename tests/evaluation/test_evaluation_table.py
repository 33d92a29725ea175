import io

import pytest
from rich.console import Console

from transduce.evaluation.evaluate import evaluate
from transduce.evaluation.evaluation_table import print_evaluation

REFERENCE = ["a", "b c", "d", "e"]


def shown(result, width):
    console = Console(file=io.StringIO(), width=width)
    print_evaluation(result, console)
    return console.file.getvalue()


def test_two_systems():
    result = evaluate(
        hypotheses=["a", "b c", "d", "x"],
        compare_with=list("aaaa"),
        reference=REFERENCE,
        metrics=["exact", "per"],
        resamples=50,
    )
    text = shown(result, 100)
    assert "A: hypotheses\nB: compare_with\n" in text
    assert "exact ↑" in text
    assert "-50.00" in text
    assert "PER: nrefs:1|bs:50|seed:12345|case:mixed" in text


@pytest.mark.parametrize(("width", "systems"), [(40, 1), (80, 2)])
def test_a_narrow_terminal_shows_all_figures_on_one_line(width, systems):
    hypotheses = list("wxyz")  # the widest figures: TER is 100
    second = {"compare_with": hypotheses} if systems == 2 else {}
    result = evaluate(hypotheses=hypotheses, reference=REFERENCE, resamples=50, **second)
    (row,) = [line for line in shown(result, width).splitlines() if "TER ↓" in line]
    assert row.split()[2:] == [*["100.00", "100.0–100.0"] * systems, *["+0.00", "1.000"] * (systems - 1)]
