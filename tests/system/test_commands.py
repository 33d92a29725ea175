"""The commands, as a user runs them."""

import json
import subprocess
import sys

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


def test_paper_table_in_a_narrow_terminal():
    result = run("paper", env={"COLUMNS": "80", "PATH": "", "TERM": "dumb"})
    assert result.returncode == 0
    assert "0 unexpected failures" in result.stdout
    assert "no*" in result.stdout
