"""Hostile commands as processes of their own, as a shell starts them: raw names, full and closed streams."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import MEMORY, SECONDS, problems_of
from hostile_place import keep_place, make_place

from inside import Done

SIX_GIGABYTES = 2 * MEMORY  # of addresses, torch included


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from keep_place(make_place(tmp_path_factory.mktemp("place"), ["pairs"]))


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (SIX_GIGABYTES, SIX_GIGABYTES))


def start(place, *arguments, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, **environment) -> Done:
    """Run a command with a limit of memory, and in another environment."""
    done = subprocess.run(
        [sys.executable, "-m", "transduce", *arguments],
        cwd=place,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        preexec_fn=limit_memory,
        timeout=2 * SECONDS,
        check=False,
    )
    return Done(
        done.returncode, (done.stdout or b"").decode(errors="replace"), done.stderr.decode(errors="replace")
    )


def test_a_full_standard_output(place):
    with Path("/dev/full").open("wb") as full:
        done = start(place, "translate", "runs/pairs/final", "--input", "three", stdout=full)
    assert problems_of(done, codes=(2,)) == []


def test_a_vocabulary_beyond_all_memory(place, tmp_path):
    options = ["--pairs", "pairs.tsv", "--vocabulary", "2147483648", "--out", tmp_path / "run"]
    assert problems_of(start(place, "train", *options), codes=(2,), names=("--vocabulary",)) == []


def test_raw_bytes_as_a_name_where_only_ascii_can_be_printed(place):
    done = start(place, "translate", b"\xff\x1b[31m\xc3\xa9", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert problems_of(done, codes=(2,)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three", "/dev/zero", "/dev/urandom", "/proc/self/mem"])
def test_devices_as_standard_input(place, name):
    with (place / name).open("rb") as file:
        done = start(place, "translate", "runs/pairs/final", stdin=file)
    assert problems_of(done, codes=(0,) if name == "three" else (2,)) == []


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(place, closed):
    command = f"exec {sys.executable} -m transduce translate runs/pairs/final --input three {closed}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=place, capture_output=True, timeout=2 * SECONDS, check=False
    )
    result = Done(done.returncode, done.stdout.decode(), done.stderr.decode())
    if "2>&-" in closed:  # nothing can be said
        assert (result.returncode in (0, 2), result.stderr) == (True, "")
    else:
        assert problems_of(result) == []
