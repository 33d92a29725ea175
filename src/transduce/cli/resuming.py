"""What to do about a run that is there already."""

import sys
from pathlib import Path

import typer


def offer(out: Path) -> bool:
    """Ask whether to go on with the run in this folder, if there is one and somebody to ask."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    from transduce.runs.translation_run import Run
    from transduce.training.distributed import is_main_process

    run = Run(out)
    return (
        is_main_process()
        and run.is_prepared
        and typer.confirm(f"{run.describe()}. Go on with it?", default=True)
    )
