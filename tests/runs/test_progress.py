"""What a run shows while it goes."""

import io

from rich.console import Console

from transduce.runs.reporting.progress import Display
from transduce.training.checkpoint import Progress


def test_the_bar_ends_where_the_run_ends():
    """Also of a run that takes no longer than a moment."""
    shown = io.StringIO()
    with Display(Console(file=shown, force_terminal=True, width=120), steps=6) as display:
        for step in range(1, 7):
            display.on_step(
                Progress(step=step, tokens=10 * step), {"loss": 7 - step, "nll": 1.0, "learning_rate": 0.1}
            )
    last = shown.getvalue().split("step ")[-1]
    assert last.startswith("6/6")
    assert "loss 1.000" in last
