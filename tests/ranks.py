"""Commands that run in several processes, started sooner than by ``torchrun``; and faults in some of them.

The processes are forked from a server that has imported everything once.
"""

import contextlib
import importlib
import itertools
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
# Optimizers and FSDP import torch._dynamo when they are first used.
PROCESSES.set_forkserver_preload(["training_process", "ranks", "transduce.cli.main", "torch._dynamo"])
LIMIT = 300  # seconds after which a process is said to hang, however slow the machine is


@dataclass(frozen=True)
class EndedRank:
    """How a process has ended."""

    exitcode: int | None  # None if it had to be ended
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Fault:
    """What goes wrong in one process when a function is called for the ``call``-th time, or every time.

    ``kill`` it; ``exit``; raise an ``error``; run out of ``memory`` after the call; or ``stall`` for ever.
    """

    rank: int
    function: str  # "module:Class.method"
    way: str
    call: int | None = 1

    def __call__(self, rank: int) -> None:
        """Prepare the fault in a process that has not begun."""
        if rank == self.rank:
            owner, name = find_function(self.function)
            setattr(owner, name, self._faulty(getattr(owner, name), itertools.count(1)))

    def _faulty(self, real: Callable[..., Any], calls: "itertools.count[int]") -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if self.call is not None and next(calls) != self.call:
                return real(*arguments, **options)
            if self.way == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.way == "exit":
                sys.exit(3)
            elif self.way == "error":
                raise LookupError("a mistake in the program")
            while self.way == "stall":
                time.sleep(0.01)
            real(*arguments, **options)
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

        return called


def find_function(name: str) -> tuple[Any, str]:
    """Return the module or class that has a function, and the function's name in it."""
    module, _, path = name.partition(":")
    *classes, function = path.split(".")
    owner = importlib.import_module(module)
    for part in classes:
        owner = getattr(owner, part)
    return owner, function


def run_in_ranks(size: int, *arguments: object, setups: Sequence[Callable[[int], None]] = ()) -> str:
    """Run a command in ``size`` processes and return what they print; each must end with exit code 0."""
    ended = end_in_ranks(size, *arguments, setups=setups)
    assert all(rank.exitcode == 0 for rank in ended), ended
    return "".join(rank.stdout + rank.stderr for rank in ended)


def end_in_ranks(
    size: int, *arguments: object, setups: Sequence[Callable[[int], None]] = ()
) -> list[EndedRank]:
    """Run a command in ``size`` processes, each after calling ``setups`` with its rank, until all end."""
    with TemporaryDirectory() as folder, contextlib.closing(socket.socket()) as reserved:
        # Bound but not listening: nobody else is given this port, and the first process may listen there.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port, outputs = reserved.getsockname()[1], [Path(folder, str(rank)) for rank in range(size)]
        command = list(map(str, arguments))
        processes = [
            PROCESSES.Process(target=_run_rank, args=(command, rank, size, port, output, setups))
            for rank, output in enumerate(outputs)
        ]
        for process in processes:
            process.start()
        deadline = time.monotonic() + LIMIT
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        codes = [process.exitcode for process in processes]
        for process in processes:
            process.kill()
            process.join()
        return [
            EndedRank(
                code, *(output.with_suffix(end).read_text(encoding="utf-8") for end in (".out", ".err"))
            )
            for code, output in zip(codes, outputs, strict=True)
        ]


def _run_rank(
    arguments: list[str],
    rank: int,
    size: int,
    port: int,
    output: Path,
    setups: Sequence[Callable[[int], None]],
) -> None:
    import torch

    from transduce.cli.main import main

    torch.set_num_threads(1)
    os.environ |= {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)},
        **{"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
    }
    for number, stream, end in ((1, sys.stdout, ".out"), (2, sys.stderr, ".err")):
        stream.flush()
        os.dup2(os.open(output.with_suffix(end), os.O_WRONLY | os.O_CREAT), number)
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.argv = ["transduce", *arguments]
    for setup in setups:
        setup(rank)
    main()
