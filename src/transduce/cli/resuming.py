"""Ask whether to resume a run that is already in the folder."""

import sys
from pathlib import Path

import typer


def confirm_resume(out: Path) -> bool:
    """Ask whether to resume the run in this folder; without a run or a terminal, return ``False``."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    from transduce.runs.folder import RunFolder
    from transduce.training.distributed import is_main_process

    folder = RunFolder(out)
    if not (is_main_process() and folder.is_prepared):
        return False
    return typer.confirm(f"{folder.describe()}. Resume it?", default=True)
