"""``transduce translate`` and ``interactive``, as a user runs them."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

import transduce
from builders import small_config
from inside import run
from transduce.data.tokenizer_training import train_tokenizer
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
COMMAND = [sys.executable, "-m", "transduce"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    transduce.save(build(small_config(), TOKENIZER.vocabulary, seed=1), folder / "model", TOKENIZER)
    transduce.save(build(small_config(), TOKENIZER.vocabulary, seed=2), folder / "other", TOKENIZER)
    (folder / "in").write_text("the fox\n\nlazy\n")
    return folder


@pytest.mark.parametrize(
    "options",
    [
        ["--nbest", 2, "--format", "json"],
        ["--beam", 6, "--diverse-groups", 3, "--diversity", 1, "--coverage-penalty", 0.2],
        ["--sample", "--temperature", 0.7, "--top-k", 5, "--top-p", 0.9, "--seed", 3, "--device", "cpu"],
        ["--constraint", "dog", "--prefix", "the", "--max-length", 20, "--min-length", 4],
        ["--no-repeat-ngram", 2, "--penalty", "plain", "--precision", "int8"],
    ],
)
def test_a_line_out_for_every_line_in(folder, options):
    done = run("translate", folder / "model", "--input", folder / "in", "--extra-length", 12, *options)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.split("\n")
    assert len(lines) == 4
    if "json" in options:
        found = [json.loads(line) for line in lines[:3]]
        assert [len(one["candidates"]) for one in found] == [2, 0, 2]
        best = found[0]["candidates"][0]
        assert len(best["alignment"]) == len(best["tokens"]) == len(best["ids"])
    else:
        assert lines[1] == ""
    if "--constraint" in options:
        assert all("dog" in line and line.startswith("the") for line in (lines[0], lines[2]))


def test_several_candidates_as_text(folder):
    """As Moses and Marian write them: number, translation and score."""
    options = ["--extra-length", 5, "--nbest", 3]
    done = run("translate", folder / "model", "--input", folder / "in", *options)
    rows = [line.split(" ||| ") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "0", "2", "2", "2"]
    scores = [float(score) for _, _, score in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)


def test_verbose_names_precision_and_engine(folder):
    done = run("translate", folder / "model", "--input", folder / "in", "--precision", "float32", "-v")
    assert done.returncode == 0
    assert done.stderr.startswith("Transformer in float32 on cpu")
    assert done.stderr.count("\n") == 1


def test_several_models(folder):
    done = run("translate", folder / "model", folder / "other", input="the fox\n")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)


def test_a_stream_is_translated_as_it_arrives(folder):
    """Samples depend on the number of a line, and not on when it arrives."""
    options = ["--extra-length", "3", "--sample", "--seed", str(10**30)]
    drawn = run("translate", folder / "model", "--input", folder / "in", *options).stdout
    command = [*COMMAND, "translate", str(folder / "model"), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said = ""
        for line in ("the fox\n", "\n", "lazy\n"):
            process.stdin.write(line)
            process.stdin.flush()
            said += process.stdout.readline()  # before the next one is sent
        process.stdin.close()
        assert process.wait() == 0
    assert said == drawn


SHORT = ["--beam", "1", "--extra-length", "0", "--max-length", "3"]
TWO = {**os.environ, "OMP_NUM_THREADS": "2"}


def test_a_stream_of_several_batches_that_stays_open(folder):
    """Worker processes are forked while another thread waits for lines."""
    command = [*COMMAND, "translate", str(folder / "model"), *SHORT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=TWO
    ) as process:
        process.stdin.write("the quick brown fox\n" * 500)
        process.stdin.flush()
        said = [process.stdout.readline() for _ in range(500)]
        process.stdin.close()
        assert process.wait() == 0
    assert len(set(said)) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_interrupted_while_waiting_for_lines(folder, number, code):
    command = [*COMMAND, "translate", str(folder / "model"), *SHORT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write("the fox\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait() == code
        assert process.stderr.read() == ("error: interrupted\n" if number == signal.SIGINT else "")


def test_a_pipe_can_be_read_only_once(folder, tmp_path):
    command = ["translate", str(folder / "model"), "--input", "/dev/stdin", "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [*COMMAND, *command, *SHORT], input="the fox\nlazy\n", text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "out").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--top-k", 3], ["--top-k", "--sample"]),
        (["--seed", 3], ["--seed", "--sample"]),
        (["--sample", "--beam", 2], ["--beam", "--sample"]),
        (["--beam", 0], ["--beam"]),
        (["--diversity", 0.7], ["--diversity", "--diverse-groups"]),
        (["--sample", "--top-p", 2], ["--top-p"]),
        (["--constraint", " "], ["--constraint"]),
        (["--input", "nowhere"], ["nowhere"]),
        (["--glossary", "nowhere"], ["nowhere"]),
        (["--precision", "int4"], ["int4"]),
        (["--device", "gpu"], ["--device", "gpu"]),
        (["--output", "nowhere/out"], ["nowhere/out"]),
    ],
)
def test_mistakes_end_with_one_line(folder, options, facts):
    done = run("translate", folder / "model", "--input", folder / "in", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert all(fact in done.stderr for fact in facts)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("source", ["nowhere", "."])
def test_an_unreadable_input_leaves_the_output_as_it_was(folder, tmp_path, source):
    target = tmp_path / "out"
    target.write_text("before\n")
    done = run("translate", folder / "model", "--input", source, "--output", target)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert target.read_text() == "before\n"


def test_a_file_is_not_its_own_translation(folder):
    done = run("translate", folder / "model", "--input", folder / "in", "--output", folder / "in")
    assert (done.returncode, "--output" in done.stderr) == (2, True)
    assert (folder / "in").read_text() == "the fox\n\nlazy\n"


def test_files_that_are_read_are_not_overwritten(folder):
    terms, config = folder / "terms", folder / "model" / "config.json"
    terms.write_text("fox\tdog\n")
    before = config.read_bytes()
    for options in (["--glossary", terms, "--output", terms], ["--output", config]):
        done = run("translate", folder / "model", "--input", folder / "in", *options)
        assert (done.returncode, "--output" in done.stderr) == (2, True)
    assert (terms.read_text(), config.read_bytes()) == ("fox\tdog\n", before)


def test_a_term_has_one_translation(folder, tmp_path):
    (tmp_path / "terms").write_text("fox\tdog\nlazy\tquick\nFox\tcat\n")
    done = run("translate", folder / "model", "--glossary", tmp_path / "terms", input="the fox\n")
    assert (done.returncode, "terms, line 3" in done.stderr) == (2, True)
    (tmp_path / "terms").write_text("fox\tdog\nFox\tdog\n")
    done = run("translate", folder / "model", "--glossary", tmp_path / "terms", input="the fox\n")
    assert (done.returncode, "dog" in done.stdout) == (0, True)


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
@pytest.mark.parametrize("command", ["translate", "interactive"])
def test_closed_streams_are_named(folder, command, closed):
    if (command, closed) == ("interactive", ">&-"):
        pytest.skip("interactive needs an output")
    line = f"{sys.executable} -m transduce {command} {folder / 'model'} {closed}"
    done = subprocess.run(["sh", "-c", line], input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"standard {'in' if closed[0] == '<' else 'out'}put is closed" in done.stderr


def test_invalid_text_is_named_and_the_lines_before_it_are_written(folder, tmp_path):
    (tmp_path / "broken").write_bytes(b"the fox\n" * 2001 + b"\xff\n")
    command = ["--input", tmp_path / "broken", "--output", tmp_path / "out", "--beam", 1, "--max-length", 2]
    done = run("translate", folder / "model", *command)
    assert (done.returncode, "broken, line 2,002" in done.stderr) == (2, True)
    assert (tmp_path / "out").read_text().count("\n") == 2001


def test_interactive_continues_after_invalid_text(folder):
    done = subprocess.run(
        [*COMMAND, "interactive", str(folder / "model"), "--alternatives", "0"],
        input=b"the fox\nbad \xff\nlazy\n",
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )
    assert done.returncode == 0
    assert done.stdout.count(b"UTF-8") == 1
    assert done.stdout.count(b"</s>") == 2  # two attention tables


@pytest.mark.parametrize("interrupt", [False, True], ids=["ctrl-d", "ctrl-c"])
def test_interactive_on_a_terminal(folder, interrupt):
    """On a terminal: the translation, alternatives, and the attention."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "interactive", str(folder / "model")],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb"},
    )
    os.close(follower)
    shown = ""

    def until(prompts):
        """Read until this many prompts were shown."""
        nonlocal shown
        while shown.count("\n> ") < prompts:
            shown += os.read(leader, 4096).decode(errors="replace")
        assert shown.count("\n> ") == prompts

    until(1)
    os.write(leader, b"the fox\n")
    until(2)
    assert "</s>" in shown  # the attention table
    if interrupt:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # raised when the process has ended
            os.write(leader, b"\n")  # wakes it if the signal came just before it began to wait
    else:
        os.write(leader, b"\x04")
    with contextlib.suppress(OSError):  # raised when the process has ended
        while part := os.read(leader, 4096):
            shown += part.decode(errors="replace")
    assert process.wait() == 0
    assert "error" not in shown
    os.close(leader)


def test_a_shortlist_is_learned_measured_and_used(folder, tmp_path):
    (tmp_path / "source").write_text("the fox\nthe quick fox\nbrown fox\n")
    (tmp_path / "target").write_text("the dog\nthe lazy dog\ndog jumps\n")
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    valid = ["--valid-source", tmp_path / "source", "--valid-target", tmp_path / "target"]
    lists = tmp_path / "lists.safetensors"
    done = run("shortlist", folder / "model", *files, *valid, "--out", lists, "--aligned", 5, "--frequent", 5)
    assert (done.returncode, done.stderr) == (0, "")
    assert "of the tokens of the validation targets are in their lists" in done.stdout
    assert "with the shortlist" in done.stdout
    done = run("translate", folder / "model", "--shortlist", lists, input="the fox\n")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    before = lists.read_bytes()
    done = run("translate", folder / "model", "--shortlist", lists, "--output", lists, input="the fox\n")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "both read and written" in done.stderr
    assert lists.read_bytes() == before


def test_a_shortlist_needs_pairs_and_a_place(folder, tmp_path):
    done = run("shortlist", folder / "model", "--out", tmp_path / "lists")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no files were given" in done.stderr
    files = ["--source", folder / "in", "--target", folder / "in"]
    done = run("shortlist", folder / "model", *files, "--out", tmp_path / "missing" / "lists")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = run("translate", folder / "model", "--shortlist", folder / "in", input="the fox\n")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a shortlist" in done.stderr
