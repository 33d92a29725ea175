"""``transduce report``."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder: the --out of transduce train.")],
) -> None:
    """Draw a run's training curves and write model cards (README.md).

    The curves are written to RUN/curves.png, and a model card to each model folder.

    This also works while the run is training. A README.md of your own is never overwritten.

    Example: transduce report runs/en-de
    """
    from transduce.cli.errors import say
    from transduce.runs.reporting.report import write_report

    written = write_report(run)
    for remark in written.remarks:
        say(remark, err=True)
    for path in written.files:
        say(path)
