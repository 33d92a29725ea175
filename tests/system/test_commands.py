"""The commands, as a user runs them."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "transduce", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_help_shows_every_command_and_imports_no_torch():
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "transduce", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "paper" in result.stdout
    assert "Example:" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "typer" in imported
    assert "torch" not in imported


def test_help_of_a_command_has_an_example():
    assert "Example: transduce paper" in run("paper", "--help").stdout


def test_no_command_shows_the_help():
    result = run()
    assert "Usage: transduce" in result.stdout + result.stderr
    assert "error" not in result.stderr


def test_version():
    assert run("--version").stdout.startswith("transduce 0.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["papr"], "error: No such command 'papr'"),
        (["paper", "--plot"], "error: No such option"),
        (["paper", "--plots"], "error: "),
        (["paper", "extra"], "error: Got unexpected extra argument"),
        (["paper", "--plots", "/dev/null/x"], "error: cannot write /dev/null/x"),
        (["paper", "--plots", "/dev/null"], "error: /dev/null is a file, not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, expected):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(expected)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_paper_json_and_plots(tmp_path):
    result = run("paper", "--json", "--plots", tmp_path / "figures")
    assert result.returncode == 0
    rows = json.loads(result.stdout)
    assert len(rows) > 40
    assert {"section", "claim", "paper", "measured", "holds"} <= rows[0].keys()
    assert len(list((tmp_path / "figures").glob("*.png"))) == 6
    assert result.stderr.count("wrote ") == 6


def test_output_that_cannot_be_written():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "transduce", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 2
    assert result.stderr == "error: cannot write the output: No space left on device\n"


def test_interrupted():
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", "paper"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in errors


def test_paper_in_a_narrow_terminal():
    """A real one: a pipe has no width."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", "paper"],
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "xterm", "PATH": ""},
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # raised at the end
        while chunk := os.read(mine, 65536):
            shown += chunk
    assert process.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 60
    assert any("here: 65.1M" in line for line in lines)


def test_paper_in_a_poor_environment():
    result = run("paper", env={"PATH": "", "TERM": "dumb", "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert "unexpected failures: 0" in result.stdout
    assert "no*" in result.stdout
