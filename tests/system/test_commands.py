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
import torch

from builders import small_rnn_config
from inside import run
from transduce.cli import main
from transduce.config import PRESETS, preset
from transduce.paper import causality, claims

SMALL = "[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 16\nd_ff = 16\nheads = 2\n"

# The paper's claims about numbers of parameters are measured at once; the others take seconds.
FAST_PAPER = """
from transduce.cli.main import main
from transduce.paper import claims, parameters
claims._GROUPS = (parameters,)
main()
"""


def start(*arguments, **options):
    """Start a command in a process of its own."""
    command = [sys.executable, "-m", "transduce", *map(str, arguments)]
    return subprocess.Popen(command, text=True, **options)


def test_help_imports_no_torch():
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "transduce", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "typer" in imported
    assert "torch" not in imported


def test_version():
    first, second = run("--version").stdout.splitlines()
    assert first.startswith("transduce 0.")
    assert second.startswith(f"torch {torch.__version__}, ")
    assert "engine: " in second


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["papr"], "'papr'"),
        (["paper", "--plot"], "--plot"),
        (["paper", "--plots"], "--plots"),
        (["paper", "extra"], "extra"),
        (["paper", "--plots", "/dev/null/x"], "/dev/null/x"),
        (["paper", "--plots", "/dev/null"], "/dev/null"),
        (["check"], "--source"),
        (["check", "--source", "a"], "1 source and 0 target"),
        (["check", "--source", "/nowhere", "--target", "/nowhere"], "/nowhere"),
        (["train", "--out", "x"], "--source"),
        (["train", "--out", "x", "--config", "/nowhere", "--pairs", "x"], "/nowhere"),
        (["train", "--source", "a"], "'--out'"),
        (["demo", "--task", "cooking"], "'--task'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, named):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert named in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_an_error_that_is_not_a_mistake_is_not_hidden(monkeypatch):
    monkeypatch.setattr(main, "app", lambda **_: {}["a bug"])
    with pytest.raises(KeyError):
        run("paper")


def test_paper_json_and_plots(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "_GROUPS", (causality,))
    result = run("paper", "--json", "--plots", tmp_path / "figures")
    assert result.returncode == 0
    rows = json.loads(result.stdout)
    assert len(rows) == len(list(causality.claims()))
    assert {"section", "claim", "paper", "measured", "holds"} <= rows[0].keys()
    assert len(list((tmp_path / "figures").glob("*.png"))) == 6
    assert result.stderr.count("figures") == 6


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
    assert result.stderr.startswith("error: cannot write the output: No space left on device; ")
    assert result.stderr.count("\n") == 1


def test_interrupted():
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)"
    result = subprocess.run(
        [sys.executable, "-c", f"from transduce.cli.errors import run\nrun(lambda: exec({program!r}))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (130, "error: interrupted\n")


def test_paper_in_a_narrow_terminal():
    """A real terminal: a pipe has no width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", FAST_PAPER, "paper"],
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "xterm", "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(theirs)
    shown = read_terminal(ours)
    assert process.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 60
    assert any("65.1M" in line for line in lines)


def read_terminal(terminal):
    """Return what is printed on a terminal until the process on its other side ends."""
    shown = b""
    with contextlib.suppress(OSError):  # raised at the end
        while chunk := os.read(terminal, 65536):
            shown += chunk
    return shown.decode()


def test_paper_without_a_path_terminal_or_utf8():
    result = subprocess.run(
        [sys.executable, "-c", FAST_PAPER, "paper"],
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
    assert result.returncode == 0, result.stderr
    assert "no*" in result.stdout


@pytest.fixture
def text(tmp_path):
    (tmp_path / "a").write_text("".join(f"{n} {n + 1}\n" for n in range(300)))
    (tmp_path / "b").write_text("".join(f"{n + 1} {n}\n" for n in range(300)))
    return tmp_path


def test_check_finds_no_problems_in_good_text(text):
    result = run("check", "--source", text / "a", "--target", text / "b")
    assert result.returncode == 0
    assert "300 pairs" in result.stdout


def test_corpora_with_weights_are_checked_planned_and_trained_on(text):
    lines = [f"{n} {n + 1}\t{n + 1} {n}\n" for n in range(300)]
    for name, part in (("new.tsv", lines[:100]), ("ol:d.tsv", lines[100:])):
        (text / name).write_text("".join(part))
    files = ["--pairs", text / "new.tsv:3", "--pairs", text / "ol:d.tsv:0.5"]
    checked = run("check", *files)
    assert (checked.returncode, "300 pairs" in checked.stdout) == (0, True)
    (text / "run.toml").write_text(
        f"{SMALL}[training]\nprecision = 'float32'\nthreads = 1\nmax_tokens = 99\n"
    )
    options = ["--config", text / "run.toml", "--epochs", 1, *files]
    planned = run("plan", *options)
    assert planned.returncode == 0, planned.stderr
    trained = run("train", *options, "--out", text / "run")
    assert trained.returncode == 0, trained.stderr
    parts = json.loads((text / "run" / "data" / "train" / "mixture.json").read_text())
    assert [part["weight"] for part in parts] == [3, 0.5]
    shown = f"{parts[0]['pairs']} × 3 + {parts[1]['pairs']} × 0.5"
    assert shown in planned.stdout
    assert shown in trained.stdout
    refused = run("check", "--pairs", text / "new.tsv:0")
    assert (refused.returncode, "new.tsv:0" in refused.stderr) == (2, True)


def test_check_says_where_a_line_is_missing(text):
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
    assert result.stderr.startswith("error: ")
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
    assert (text / "run" / "final" / "tokenizer.json").exists()
    again = run(*command, *options)
    assert again.returncode == 2
    assert "step 4" in again.stderr
    assert "--resume" in again.stderr
    assert run("train", "--resume", "--out", text / "run").returncode == 0


@pytest.mark.parametrize("strict", [False, True])
def test_strict_refuses_text_that_has_anything_wrong_with_it(text, strict):
    (text / "a").write_text((text / "a").read_text() + "\n")
    (text / "b").write_text((text / "b").read_text() + "surplus\n")
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", text / "run"]
    (text / "run.toml").write_text(SMALL + "[training]\nsteps = 1\nprecision = 'float32'\n")
    options = ["--config", text / "run.toml", "--tokenizer", "char", *(["--strict"] if strict else [])]
    result = run(*command, *options)
    if strict:
        assert result.returncode == 2
        assert result.stderr.startswith("error: ")
        assert not (text / "run").exists()
    else:
        assert result.returncode == 0, result.stderr
        assert "301 pairs" in result.stdout


def test_ctrl_c_saves_and_prints_the_command_that_continues(text):
    (text / "run.toml").write_text(
        SMALL + "[training]\nsteps = 100000\nwarmup = 2\nvalidate_every = 5\nprecision = 'float32'\n"
    )
    out = text / "my run"
    options = ["--config", text / "run.toml", "--tokenizer", "char"]
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", out, *options]
    process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not list(out.glob("checkpoints/step-*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors == ""
    advice = output.splitlines()[-1]
    program, *arguments = shlex.split(advice[advice.index("transduce ") :])
    assert program == "transduce"
    done = max(int(path.name.removeprefix("step-")) for path in out.glob("checkpoints/step-*"))
    resumed = run(*arguments, "--steps", done + 1)
    assert resumed.returncode == 0, resumed.stderr
    assert f"from step {done}" in resumed.stdout.replace(",", "")
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
    assert "'rnn'" in mistaken.stderr


def test_demo(tmp_path):
    result = run("demo", "--task", "reverse", "--steps", "3", "--out", tmp_path / "demo")
    assert result.returncode == 0, result.stderr
    assert "transduce train --source" in result.stdout
    assert "<html" in (tmp_path / "demo" / "attention.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_demo_learns_dates(tmp_path):
    result = run("demo", "--out", tmp_path / "demo")
    assert result.returncode == 0, result.stderr
    (correct,) = re.findall(r"^(\d+) of 500 ", result.stdout, re.MULTILINE)
    assert int(correct) >= 490


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
    assert "3.0 epochs" in rows["whole run"]
    assert "target tokens/s" in rows["speed"]
    assert rows["precision"] in ("float32", "bfloat16")


def test_running_the_same_command_again_in_a_terminal_offers_to_continue(text):
    (text / "run.toml").write_text(
        SMALL + "[training]\nsteps = 2\nwarmup = 2\nvalidate_every = 2\nprecision = 'float32'\n"
    )
    command = ["train", "--source", text / "a", "--target", text / "b", "--out", text / "run"]
    command += ["--config", text / "run.toml", "--tokenizer", "char"]
    assert run(*command).returncode == 0
    ours, theirs = pty.openpty()
    process = start(*command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"y\n")
    shown = read_terminal(ours)
    assert process.wait() == 0
    assert "step 2 of 2" in shown
    assert "from step 2" in shown
