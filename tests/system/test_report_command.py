"""``transduce report``, as a user runs it: after a run, and on one that was killed."""

import signal
import subprocess
import sys
import time

import pytest

from inside import run

RUN_FILE = (
    "[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 16\nd_ff = 16\nheads = 2\n"
    "[training]\nsteps = {steps}\nwarmup = 2\nvalidate_every = 30\naverage = 2\nprecision = 'float32'\n"
)


def prepare(folder, steps):
    """Write what a run needs, and return its command."""
    (folder / "a").write_text("".join(f"{n} {n + 1}\n" for n in range(300)))
    (folder / "b").write_text("".join(f"{n + 1} {n}\n" for n in range(300)))
    (folder / "run.toml").write_text(RUN_FILE.format(steps=steps))
    text = ["--source", folder / "a", "--target", folder / "b", "--tokenizer", "char"]
    return ["train", *text, "--config", folder / "run.toml", "--out", folder / "run"]


def test_help_has_an_example():
    assert "Example: transduce report runs/en-de" in run("report", "--help").stdout


def test_a_finished_run(tmp_path):
    assert run(*prepare(tmp_path, steps=60)).returncode == 0
    result = run("report", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    written = ["curves.png", *(f"{m}/{f}" for m in ("best", "final") for f in ("README.md", "curves.png"))]
    assert result.stdout.splitlines() == [str(tmp_path / "run" / name) for name in written]
    card = (tmp_path / "run" / "final" / "README.md").read_text(encoding="utf-8")
    assert "average of the last 2 checkpoints" in card
    assert "| steps | 60 |" in card

    (tmp_path / "run" / "best" / "README.md").write_text("# by hand\n")
    result = run("report", tmp_path / "run")
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert str(tmp_path / "run" / "best" / "README.md") in result.stderr
    assert (tmp_path / "run" / "best" / "README.md").read_text() == "# by hand\n"


def test_a_run_that_was_killed(tmp_path):
    command = [sys.executable, "-m", "transduce", *map(str, prepare(tmp_path, steps=1_000_000))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not list(tmp_path.glob("run/checkpoints/step-*")):
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9')  # a kill inside a write, which no test can time
    result = run("report", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "**not finished**" in (tmp_path / "run" / "best" / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "error: Missing argument 'RUN'"),
        (["/nowhere"], "error: /nowhere is not a run folder"),
        (["/dev/null"], "error: /dev/null is not a run folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, expected):
    result = run("report", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(expected)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
