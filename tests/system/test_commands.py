"""The commands, as a user runs them."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from builders import small_rnn_config
from inside import run
from transduce.config import PRESETS, preset
from transduce.paper import causality, claims

SMALL = "[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 16\nd_ff = 16\nheads = 2\n"


def test_help_shows_every_command_and_imports_no_torch():
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "transduce", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for command in (
        *("check", "demo", "evaluate", "import", "inspect", "interactive", "paper"),
        *("plan", "report", "score", "train", "translate"),
    ):
        assert f"  {command}  " in result.stdout
    assert "Example:" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "typer" in imported
    assert "torch" not in imported


@pytest.mark.parametrize("command", ["check", "demo", "interactive", "paper", "train", "translate"])
def test_help_of_a_command_has_an_example(command):
    assert f"Example: transduce {command}" in run(command, "--help").stdout


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
        (["check"], "error: no files were given"),
        (["check", "--source", "a"], "error: 1 source and 0 target files were given for training"),
        (
            ["check", "--source", "/nowhere", "--target", "/nowhere"],
            "error: cannot read /nowhere: No such file",
        ),
        (["train", "--out", "x"], "error: no files were given"),
        (["train", "--out", "x", "--config", "/nowhere", "--pairs", "x"], "error: cannot read /nowhere"),
        (["train", "--source", "a"], "error: Missing option '--out'"),
        (["demo", "--task", "cooking"], "error: Invalid value for '--task'"),
        (["paper", "--plots", "/dev/null"], "error: /dev/null is a file, not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, expected):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(expected)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_paper_json_and_plots(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "_GROUPS", (causality,))
    result = run("paper", "--json", "--plots", tmp_path / "figures")
    assert result.returncode == 0
    rows = json.loads(result.stdout)
    assert len(rows) == len(list(causality.claims()))
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


INTERRUPTED = """
import signal, time
from transduce.cli.main import main
from transduce.paper import claims

def all_claims():
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)

claims.all_claims = all_claims
main()
"""


def test_interrupted():
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "paper"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 130
    assert process.stderr.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in process.stderr


def test_paper_in_a_narrow_terminal():
    """A real one: a pipe has no width."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", "paper"],
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "xterm", "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)},
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


POOR = """
from transduce.cli.main import main
from transduce.paper import claims, parameters

claims._GROUPS = (parameters,)
main()
"""


def test_paper_in_a_poor_environment():
    result = subprocess.run(
        [sys.executable, "-c", POOR, "paper"],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": "",
            "TERM": "dumb",
            "PYTHONIOENCODING": "ascii",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    assert result.returncode == 0
    assert "unexpected failures: 0" in result.stdout
    assert "no*" in result.stdout


@pytest.fixture
def text(tmp_path):
    (tmp_path / "a").write_text("".join(f"{n} {n + 1}\n" for n in range(300)))
    (tmp_path / "b").write_text("".join(f"{n + 1} {n}\n" for n in range(300)))
    return tmp_path


def test_check_finds_nothing_in_good_text(text):
    result = run("check", "--source", text / "a", "--target", text / "b")
    assert result.returncode == 0
    assert "300 pairs, nothing to complain about" in result.stdout


def test_check_says_where_files_part(text):
    lines = [f"{'x' * (n * 7919 % 50 + 1)}\n" for n in range(200)]
    (text / "a").write_text("".join(lines))
    (text / "b").write_text("".join(lines[:120] + lines[121:]))
    result = run("check", "--source", text / "a", "--target", text / "b")
    assert result.returncode == 1
    assert "line 121" in " ".join(result.stdout.split())


def test_train_refuses_what_it_cannot_use_and_touches_nothing(text):
    (text / "b").write_text("too short\n")
    result = run("train", "--source", text / "a", "--target", text / "b", "--out", text / "run")
    assert result.returncode == 2
    assert result.stderr.startswith("error: the text is not fit for training: ")
    assert result.stderr.endswith("; mend what the table above says\n")
    assert result.stderr.count("\n") == 1
    assert not (text / "run" / "run.toml").exists()


def test_train_and_resume(text):
    (text / "run.toml").write_text(
        SMALL + "[training]\nsteps = 4\nwarmup = 2\nvalidate_every = 2\nprecision = 'float32'\n"
    )
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", text / "run"]
    options = ["--config", text / "run.toml", "--tokenizer", "char"]
    first = run(*command, *options)
    assert first.returncode == 0, first.stderr
    assert "step 4: validation" in first.stdout
    assert (text / "run" / "final" / "tokenizer.json").exists()
    again = run(*command, *options)
    assert again.returncode == 2
    assert "holds a run already, at step 4 of 4; add --resume to go on with it" in again.stderr
    assert run("train", "--resume", "--out", text / "run").returncode == 0


@pytest.mark.parametrize("strict", [False, True])
def test_strict_refuses_text_that_has_anything_wrong_with_it(text, strict):
    (text / "a").write_text((text / "a").read_text() + "\n")
    (text / "b").write_text((text / "b").read_text() + "surplus\n")
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", text / "run"]
    (text / "run.toml").write_text(SMALL + "[training]\nsteps = 1\nprecision = 'float32'\n")
    options = ["--config", text / "run.toml", "--tokenizer", "char", *(["--strict"] if strict else [])]
    result = run(*command, *options)
    assert "empty on one side or both" in result.stdout
    if strict:
        assert result.returncode == 2
        assert result.stderr == "error: the text is not fit for training; mend what the table above says\n"
        assert not (text / "run").exists()
    else:
        assert result.returncode == 0, result.stderr
        assert "301 pairs looked at; training leaves 1 of them out" in result.stdout


def test_ctrl_c_saves_and_says_how_to_go_on(text):
    (text / "run.toml").write_text(
        SMALL + "[training]\nsteps = 100000\nwarmup = 2\nvalidate_every = 5\nprecision = 'float32'\n"
    )
    out = text / "my run"
    options = ["--config", text / "run.toml", "--tokenizer", "char"]
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", out, *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not list(out.glob("checkpoints/step-*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors == ""
    *_, last = said.splitlines()
    told, advice = last.split(": ", 1)
    program, *arguments = shlex.split(advice)
    assert (told, program) == ("stopped; to go on", "transduce")
    done = max(int(path.name.removeprefix("step-")) for path in out.glob("checkpoints/step-*"))
    resumed = run(*arguments, "--steps", done + 1)
    assert resumed.returncode == 0, resumed.stderr
    assert f"going on from step {done}" in resumed.stdout.replace(",", "")
    assert (out / "final").exists()


def test_train_an_rnn_and_translate_with_it(text, monkeypatch):
    monkeypatch.setitem(PRESETS, "rnn", preset("rnn").model_copy(update={"model": small_rnn_config()}))
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", text / "run"]
    trained = run(*command, "--family", "rnn", "--steps", "2", "--tokenizer", "char")
    assert trained.returncode == 0, trained.stderr
    assert 'family = "rnn"' in (text / "run" / "run.toml").read_text()
    lines = (text / "a").read_text().splitlines()[:5]
    translated = run("translate", text / "run" / "final", "--beam", "3", input="\n".join(lines) + "\n")
    assert translated.returncode == 0, translated.stderr
    assert translated.stdout.count("\n") == 5
    mistaken = run(*command[:-1], text / "other", "--family", "rnnn")
    assert mistaken.returncode == 2
    assert mistaken.stderr == "error: there is no family 'rnnn'; did you mean 'rnn'?\n"


def test_demo(tmp_path):
    result = run("demo", "--task", "reverse", "--steps", "3", "--out", tmp_path / "demo")
    assert result.returncode == 0, result.stderr
    assert "came out exactly right" in result.stdout
    assert "transduce train --source" in result.stdout
    assert "<html" in (tmp_path / "demo" / "attention.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_demo_learns_dates(tmp_path):
    result = run("demo", "--out", tmp_path / "demo")
    assert result.returncode == 0, result.stderr
    (right,) = re.findall(r"^([\d.]+)% of 500 texts came out exactly right", result.stdout, re.MULTILINE)
    assert float(right) >= 98


def test_plan_says_what_a_run_will_take(text):
    (text / "run.toml").write_text(SMALL.replace("16", "256"))
    options = ["--config", text / "run.toml", "--epochs", 3]
    result = run("plan", "--source", text / "a", "--target", text / "b", *options)
    assert result.returncode == 0, result.stderr
    lines = [line.strip() for line in result.stdout.splitlines()]
    rows = dict(re.split(r"\s{3,}", line, maxsplit=1) for line in lines if "   " in line)
    parameters = int(rows["parameters"].replace(",", ""))
    total, fixed = (int(figure.replace(",", "")) for figure in re.findall(r"([\d,]+) MB", rows["memory"]))
    assert fixed == round(16 * parameters / 2**20)
    assert 0 < fixed < total
    assert "3.0 epochs" in rows["the whole run"]
    assert "target tokens/s" in rows["speed"]
    assert rows["precision"] in ("float32", "bfloat16")


def test_running_the_same_command_again_offers_to_go_on(text):
    """To somebody who can answer."""
    (text / "run.toml").write_text(
        SMALL + "[training]\nsteps = 2\nwarmup = 2\nvalidate_every = 2\nprecision = 'float32'\n"
    )
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", text / "run"]
    command += ["--config", text / "run.toml", "--tokenizer", "char"]
    assert run(*command).returncode == 0
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", *map(str, command)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, b"y\n")
    said = b""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 1000):
            said += part
    assert process.wait() == 0
    assert b"at step 2 of 2. Go on with it?" in said
    assert b"going on from step 2" in said
