"""Commands as a user runs them, without the seconds that a new process takes to import torch."""

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from transduce.cli.main import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def working_in(folder):
    """Change the working folder, as contextlib.chdir does from Python 3.11 on."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(*arguments, input="", cwd=None):  # noqa: A002 (as `subprocess.run` has it)
    """What the command line prints, and its exit code; an error that it does not catch is not caught here."""
    streams = {
        name: io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", newline="\n", write_through=True)
        for name, text in (("stdin", input), ("stdout", ""), ("stderr", ""))
    }
    code = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["transduce", *map(str, arguments)]))
        for name, stream in streams.items():
            stack.enter_context(mock.patch.object(sys, name, stream))
        if cwd:
            stack.enter_context(working_in(cwd))
        try:
            main()
        except SystemExit as end:
            code = end.code
    outputs = [streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr")]
    return Done(0 if code is None else code, *outputs)
