"""Measure the time and peak memory of each kind of self-attention, forward and backward.

python bench/long_attention.py --quick    # a few seconds: check that it works
python bench/long_attention.py            # 256 to 4096 positions, a few minutes

Kinds alternate, and times are medians. Memory is measured once for each kind and length, in a process of its
own: how far its peak rises above the memory before. That needs Linux.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from transduce.nn.hashed_attention import HashedSelfAttention
from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.multi_head_attention import FullSelfAttention, MultiHeadAttention
from transduce.nn.window_attention import WindowSelfAttention

LENGTHS, QUICK = (256, 512, 1024, 2048, 4096), (256, 512)
D_MODEL, HEADS = 256, 4
RADIUS, RANK, BUCKETS, ROUNDS, CHUNK = 64, 128, 16, 2, 64

KINDS: dict[str, Callable[[int], MultiHeadAttention]] = {
    "full": lambda n: FullSelfAttention(D_MODEL, HEADS),
    "full, attention dropout": lambda n: FullSelfAttention(D_MODEL, HEADS, dropout=0.1),
    "window": lambda n: WindowSelfAttention(D_MODEL, HEADS, radius=RADIUS, global_tokens=1),
    "low_rank": lambda n: LowRankSelfAttention(D_MODEL, HEADS, rank=RANK, max_length=n),
    "hashed": lambda n: HashedSelfAttention(D_MODEL, HEADS, buckets=BUCKETS, rounds=ROUNDS, chunk=CHUNK),
}


def make(kind: str, length: int) -> Callable[[], None]:
    """Return a function that runs forward and backward over one sequence."""
    layer, x = KINDS[kind](length).train(), torch.randn(1, length, D_MODEL, requires_grad=True)
    return lambda: layer(x).sum().backward()


def seconds(length: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each kind; kinds alternate, so that other load affects all alike."""
    runs = {kind: make(kind, length) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for kind, run in runs.items():
            begin = time.perf_counter()
            run()
            times[kind].append(time.perf_counter() - begin)
    return {kind: statistics.median(taken) for kind, taken in times.items()}


def memory_bytes(field: str) -> int:
    """Return the memory of this process (VmRSS) or its peak (VmHWM) in bytes.

    `resource.getrusage` would not do: there, a new process starts with the peak of its parent.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def megabytes(kind: str, length: int) -> float:
    """Return the memory of one pass, measured in a process of its own."""
    threads = str(torch.get_num_threads())
    command = [sys.executable, __file__, "--one", kind, str(length), "--threads", threads]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_one(kind: str, length: int) -> None:
    """Print the memory of one pass, after a short one that lets torch set itself up."""
    make(kind, 2 * CHUNK)()
    run, before = make(kind, length), memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    run()
    print((memory_bytes("VmHWM") - before) / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short sequences, few rounds")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--one", nargs=2, metavar=("KIND", "LENGTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        print_one(arguments.one[0], int(arguments.one[1]))
        return
    lengths, rounds = (QUICK, 2) if arguments.quick else (LENGTHS, arguments.rounds)
    print(
        f"d_model {D_MODEL}, {HEADS} heads; radius {RADIUS} and 1 global token; rank {RANK}; "
        f"{BUCKETS} buckets, {ROUNDS} rounds, chunks of {CHUNK}; one sequence, no padding, not causal\n"
        f"torch {torch.__version__}, {torch.get_num_threads()} thread(s), medians of {rounds}\n"
    )
    print("| positions | kind | ms | times as fast as full | MB |\n|---|---|---|---|---|")
    for length in lengths:
        found = seconds(length, rounds)
        for kind, taken in found.items():
            ratio = found["full"] / taken
            memory = megabytes(kind, length)
            print(f"| {length} | {kind} | {1000 * taken:.1f} | {ratio:.2f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
