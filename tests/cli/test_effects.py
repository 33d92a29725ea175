"""Options without effect, and Ctrl-C before a command has begun."""

import os
import subprocess
import sys

import pytest

from builders import random_words
from inside import run


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["translate", "model", "--sample", "--beam", "4"], "--beam"),
        (["translate", "model", "--sample", "--length-penalty", "0.6"], "--length-penalty"),
        (["translate", "model", "--seed", "1"], "--seed"),
        (["backtranslate", "model", "--top-p", "1.0"], "--top-p"),
        (["lm", "generate", "model", "--beam", "2", "--seed", "1"], "--seed"),
        (["lm", "generate", "model", "--length-penalty", "0.6"], "--length-penalty"),
        (["translate", "model", "--diversity", "0.5"], "--diversity"),
        (["evaluate", "--hypotheses", "a", "--reference", "b", "--beam", "4"], "--beam"),
        (["train", "--pairs", "a", "--valid-pairs", "b", "--out", "c", "--hold-out", "0.02"], "--hold-out"),
        (["train", "--pairs", "a", "--from", "b", "--out", "c", "--normalize", "nfc"], "--normalize"),
        (
            ["vision", "train", "--images", "a", "--valid", "b", "--out", "c", "--hold-out", "0.1"],
            "--hold-out",
        ),
    ],
)
def test_an_option_without_effect_is_refused_even_if_it_has_its_default_value(arguments, option):
    done = run(*arguments)
    assert done.returncode == 2
    assert f"{option} has no effect" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["translate", "model", "--beam", "4"], ["translate", "model", "--sample", "--seed", "1"],
     ["lm", "generate", "model", "--seed", "1"], ["lm", "generate", "model", "--beam", "2"]],
)  # fmt: skip
def test_options_with_an_effect_are_not(arguments):
    assert "model is not a folder" in run(*arguments).stderr


def test_every_option_that_a_resumed_run_ignores_is_named(tmp_path):
    (tmp_path / "words").write_text("\n".join(random_words(60)) + "\n")
    files = ["--source", tmp_path / "words", "--target", tmp_path / "words", "--tokenizer", "char"]
    sizes = ["--set", "model.d_model=16", "--set", "model.d_ff=16", "--set", "model.heads=2"]
    options = [*sizes, "--precision", "float32", "--set", "training.threads=1"]
    begin = ["train", "--out", tmp_path / "run", "--preset", "tiny", *files, *options, "--steps", "1"]
    assert run(*begin).returncode == 0
    resume = ["train", "--out", tmp_path / "run", "--resume", "--steps", "2"]
    done = run(*resume, "--hold-out", "0.02", "--max-length", "300", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "--hold-out has no effect" in done.stderr
    assert "--max-length" in done.stdout
    assert "--device" not in done.stdout + done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_while_the_command_line_is_imported():
    """The signal comes when the first module of typer is imported."""
    program = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from transduce.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
