"""Hostile invocations of the command line: how they are run, and what must hold of each of them.

`invoke` runs a command inside this process, `invoke_apart` in a process of its own with little memory, where
it may hang, panic or ask for too much. `problems_of` tells what is wrong with the outcome.
"""

import contextlib
import hashlib
import io
import multiprocessing
import os
import pkgutil
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import transduce
from inside import Done, run

SECONDS = 60  # after which a command counts as endless
MEMORY = 3 << 30  # bytes of addresses, on top of what a process has that has imported torch
# Forked from a server that has imported everything once, as in ranks.py
PROCESSES = multiprocessing.get_context("forkserver")
_MODULES = (module.name for module in pkgutil.walk_packages(transduce.__path__, "transduce."))
PROCESSES.set_forkserver_preload(
    ["training_process", "ranks", "torch._dynamo", *(name for name in _MODULES if "__main__" not in name)]
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_USAGE = re.compile(r"\(see: transduce[a-z ]* --help\)$")
_TROUBLE = re.compile(r"Traceback|panicked|RUST_BACKTRACE|https?://|core dumped")


class Endless(BaseException):
    """Raised in a command that has not ended in time."""


def thin_out(cases: Iterable[object], every: int) -> list[object]:
    """Leave all but every n-th case to the longer tests."""
    return [
        case
        if number % every == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def invoke(*arguments: object, input: str = "", cwd: Path | None = None) -> Done:  # noqa: A002
    """Run a command inside this process."""
    with _time_limit():
        try:
            return run(*arguments, input=input, cwd=cwd)
        except io.UnsupportedOperation:
            # After an error of the operating system, a command redirects file descriptor 1, and here standard
            # output is none.
            return invoke_apart(*arguments, input=input, cwd=cwd)


def invoke_apart(*arguments: object, input: str = "", cwd: Path | None = None) -> Done:  # noqa: A002
    """Run a command in a process of its own."""
    return call_apart(_main, list(map(str, arguments)), cwd, input=input)


def call_apart(function: Callable[..., None], *arguments: object, input: str = "") -> Done:  # noqa: A002
    """Call a function in a process of its own, with limits of memory and time."""
    with TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(input, encoding="utf-8")
        process = PROCESSES.Process(target=_apart, args=(streams, os.environ["HOME"], function, arguments))
        process.start()
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            raise Endless
        out, err = (stream.read_bytes().decode(errors="replace") for stream in streams[1:])
        return Done(process.exitcode, out, err)


def problems_of(
    done: Done, *, codes: tuple[int, ...] = (0, 2), names: tuple[str, ...] = (), is_report: bool = False
) -> list[str]:
    """Return what is wrong with the outcome of a hostile command.

    If there are ``names``, its error line must contain one of them. What it prints is judged like its errors
    if it ``is_report``, and is the model's own words otherwise.
    """
    lines = done.stderr.removesuffix("\n").split("\n") if done.stderr else []
    errors = [line for line in lines if line.startswith("error: ")]
    # A command that succeeds may also print what it has done.
    others = (
        [line for line in lines if not line.startswith(("error: ", "warning: "))] if done.returncode else []
    )
    printed = done.stdout + done.stderr if is_report else done.stderr
    found = [f"{match[0]!r} is printed" for match in _TROUBLE.finditer(printed)][:1]
    found += [
        f"a control character is printed: {line[:200]!r}"
        for line in printed.split("\n")
        if control_characters(line)
    ][:1]
    if done.returncode not in codes:
        found.append(f"exit code {done.returncode}, not one of {codes}")
    if len(errors) != (done.returncode == 2):
        found.append(f"{len(errors)} error lines and exit code {done.returncode}")
    if others:
        found.append(
            f"{len(others)} lines that are neither errors nor warnings, the last: {others[-1][:300]!r}"
        )
    for line in errors:
        found += _problems_of_line(line, names)
    return found


def control_characters(text: str) -> list[str]:
    """Return the control characters in a text, except tabs and line feeds."""
    return [repr(character) for character in _CONTROL.findall(text)]


def assert_no_problem(problems: Mapping[str, list[str]]) -> None:
    """Fail with a line for every case that has problems."""
    __tracebackhide__ = True
    lines = [f"{case}: {'; '.join(found)}" for case, found in problems.items() if found]
    assert not lines, "\n".join(lines)


def _problems_of_line(line: str, names: tuple[str, ...]) -> Iterator[str]:
    what, _, remedy = line.rpartition("; ")
    if not (what and remedy) and not _USAGE.search(line):
        yield f"no remedy: {line!r}"
    if re.search(r": None\b", line):
        yield f"None as a reason: {line!r}"
    if names and not any(name in line for name in names):
        yield f"none of {names} is named: {line!r}"


def hashes_of(folder: Path) -> dict[Path, str]:
    """Return a hash of every regular file in a folder."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def changes(folder: Path, before: dict[Path, str]) -> list[str]:
    """Return which of the files that were there have been changed or removed; new ones are outputs."""
    after = hashes_of(folder)
    return [f"{path} was changed" for path, digest in before.items() if after.get(path) != digest]


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def end(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _apart(
    streams: list[Path], home: str, function: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    """Call a function with the standard streams in files: what other libraries print counts, too."""
    import torch

    torch.set_num_threads(1)
    os.environ |= {"HOME": home, "TOKENIZERS_PARALLELISM": "false"}
    for number, (path, mode) in enumerate(zip(streams, ("rb", "wb", "wb"), strict=True)):
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False)
        for number, mode in enumerate(("r", "w", "w"))
    )
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, -1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    function(*arguments)


def _main(arguments: list[str], cwd: Path | None) -> None:
    from transduce.cli.main import main

    if cwd:
        os.chdir(cwd)
    sys.argv = ["transduce", *arguments]
    main()
