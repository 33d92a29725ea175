"""Commands that run in several processes, started sooner than by ``torchrun``.

The processes are forked from a server that has imported everything once.
"""

import contextlib
import multiprocessing
import os
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PROCESSES = multiprocessing.get_context("forkserver")
# Optimizers and FSDP import torch._dynamo when they are first used.
PROCESSES.set_forkserver_preload(["training_process", "ranks", "transduce.cli.main", "torch._dynamo"])


def run_in_ranks(size: int, *arguments: object) -> str:
    """Run a command in ``size`` processes and return what they print; each must end with exit code 0."""
    with TemporaryDirectory() as folder, contextlib.closing(socket.socket()) as reserved:
        # Bound but not listening: nobody else is given this port, and the first process may listen there.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port, outputs = reserved.getsockname()[1], [Path(folder, str(rank)) for rank in range(size)]
        processes = [
            PROCESSES.Process(target=_run_rank, args=(list(map(str, arguments)), rank, size, port, output))
            for rank, output in enumerate(outputs)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        printed = "".join(output.read_text(encoding="utf-8") for output in outputs)
        assert all(process.exitcode == 0 for process in processes), printed
        return printed


def _run_rank(arguments: list[str], rank: int, size: int, port: int, output: Path) -> None:
    import torch

    from transduce.cli.main import main

    torch.set_num_threads(1)
    os.environ |= {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)},
        **{"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
    }
    file = output.open("w", encoding="utf-8")
    sys.stdout = sys.stderr = file
    sys.argv = ["transduce", *arguments]
    try:
        main()
    finally:
        file.flush()
