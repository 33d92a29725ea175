"""``transduce average``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Run = Annotated[Path, Argument(metavar="RUN", help="Run folder: the --out of transduce train.")]
Last = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=10_000_000,
        help="Average the last N checkpoints; by default, as many as for the final model.",
    ),
]
Steps = Annotated[
    str | None,
    Option(
        metavar="A,B,...",
        help="Average the checkpoints of these steps; with one step, export its checkpoint.",
    ),
]
Out = Annotated[Path, Option(metavar="MODEL", help="Model folder to write.")]


def average(run: Run, out: Out, last: Last = None, steps: Steps = None) -> None:
    """Average chosen checkpoints of a run, or export one of them, as a model folder.

    Example: transduce average runs/en-de --last 10 --out models/en-de

    Example: transduce average runs/en-de --steps 20000 --out models/en-de-20000
    """
    from transduce.cli.errors import say
    from transduce.runs.folder import parse_steps
    from transduce.training.averaging import average_run

    averaged = average_run(run, out, last=last, steps=parse_steps(steps))
    steps_averaged = ", ".join(f"{step:,}" for step in averaged)
    say(f"wrote {out}: {'an average of steps' if len(averaged) > 1 else 'step'} {steps_averaged}")
