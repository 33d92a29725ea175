"""A trial of a prepared run in a process of its own: how fast it is, and how much memory it takes.

Memory that was used once is kept for the next step (see `transduce.machine.keep_memory`): where a trial was
made before, nobody can tell what the next one takes.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from transduce.errors import TrainingError, TransduceError
from transduce.machine import keep_memory
from transduce.runs.probe import Probe, probe
from transduce.runs.translation_run import Run
from transduce.training.distributed import WorkerGroup

_PROGRAM = "import sys; from transduce.runs.trial import main; main(*sys.argv[1:])"


@dataclass(frozen=True)
class Trial:
    """What a run is like on this machine."""

    probe: Probe
    memory: int | None  # bytes at the peak, over those before there was a model; not known everywhere


def try_out(folder: Path, device: torch.device) -> Trial:
    """Take some steps of the run that was prepared in this folder; nothing is written there."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # leave the other process what an earlier trial keeps here
    done = subprocess.run(  # noqa: S603 (our own program)
        [sys.executable, "-c", _PROGRAM, str(folder), str(device), str(torch.get_num_threads())],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with code {done.returncode}"]
        raise TrainingError(
            f"the trial of the run failed: {last[0]}", "if memory did not suffice, try a smaller max_tokens"
        )
    found = json.loads(done.stdout.splitlines()[-1])
    if "problem" in found:
        raise TrainingError(**found)
    return Trial(Probe(**found["probe"]), found["memory"])


def main(folder: str, device: str, threads: str) -> None:
    """In the other process: leave what `try_out` returns, or the error, on the last line of the output."""
    torch.set_num_threads(int(threads))
    keep_memory()
    team = WorkerGroup(device=torch.device(device))
    try:
        before = _start_measuring(team.device)
        measured = probe(*Run(Path(folder)).open(), team)
        peak = _peak_memory(team.device)
        memory = None if before is None or peak is None else peak - before
        found = asdict(Trial(measured, memory))
    except TransduceError as error:
        found = {"problem": error.problem, "remedy": error.remedy}
    sys.stdout.write(f"{json.dumps(found)}\n")


def _start_measuring(device: torch.device) -> int | None:
    """Forget earlier peaks where that is possible; gives the bytes in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    return _peak_memory(device)


def _peak_memory(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    with suppress(ImportError):  # Windows has no such module
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return None
