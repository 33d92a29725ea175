"""``score`` and ``evaluate`` on the command line."""

import json
import math
import subprocess
import sys

import pytest

from inside import run
from transduce.cli.main import main

CONFIG = (
    "[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 16\nd_ff = 16\nheads = 2\n"
    "[training]\nsteps = 4\nwarmup = 2\nvalidate_every = 2\naverage = 1\n"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with a run of a few steps that was validated on ``test.a`` and ``test.b``."""
    folder = tmp_path_factory.mktemp("trained")
    for name, numbers in (("train", range(300)), ("test", range(300, 312))):
        (folder / f"{name}.a").write_text("".join(f"{n} {n + 1}\n" for n in numbers))
        (folder / f"{name}.b").write_text("".join(f"{n + 1} {n}\n" for n in numbers))
    (folder / "run.toml").write_text(CONFIG)
    sides = ["--source", folder / "train.a", "--target", folder / "train.b"]
    sides += ["--valid-source", folder / "test.a", "--valid-target", folder / "test.b"]
    options = ["--config", folder / "run.toml", "--tokenizer", "char", "--out", folder / "run"]
    result = run("train", *sides, *options)
    assert result.returncode == 0, result.stderr
    return folder


def test_score_agrees_with_validation(trained):
    pair = ["--source", trained / "test.a", "--target", trained / "test.b"]
    shown = run("score", trained / "run" / "final", *pair)
    assert shown.returncode == 0, shown.stderr
    values = [float(line) for line in shown.stdout.splitlines()]
    assert len(values) == 12
    *lines, total = map(
        json.loads, run("score", trained / "run/final", *pair, "--format", "json").stdout.splitlines()
    )
    assert [line["log_probability"] for line in lines] == pytest.approx(values, abs=1e-5)
    for line in lines:
        assert sum(line["log_probabilities"]) == pytest.approx(line["log_probability"])
        assert len(line["tokens"]) + 1 == len(line["log_probabilities"])
    assert total["pairs"] == 12
    assert total["tokens"] == sum(len(line["log_probabilities"]) for line in lines)
    assert total["log_probability"] == pytest.approx(sum(values), abs=1e-4)
    metrics = [json.loads(line) for line in (trained / "run" / "metrics.jsonl").read_text().splitlines()]
    (validation,) = [one for one in metrics if "valid_loss" in one and one["step"] == 4]
    assert math.log(total["perplexity"]) == pytest.approx(validation["valid_loss"], abs=1e-4)
    assert f"perplexity {total['perplexity']:.4f} per token" in shown.stderr
    assert shown.stderr.count("\n") == 1  # no progress bar without a terminal


def test_evaluate_translates_measures_and_compares(trained, tmp_path):
    data = ["--source", trained / "test.a", "--reference", trained / "test.b"]
    model, output = trained / "run" / "final", tmp_path / "output"
    shown = run("evaluate", model, *data, "--output", output, "--beam", 2, "--precision", "float32")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    for name in ("BLEU ↑", "chrF ↑", "TER ↓", "exact ↑", "BLEU: nrefs:1|bs:1000|seed:12345|case:mixed"):
        assert name in shown.stdout
    assert "search: beam:2|length_penalty:0.6|precision:float32\n" in shown.stdout
    translated = run("translate", model, "--input", trained / "test.a", "--beam", 2, "--precision", "float32")
    assert output.read_text() == translated.stdout
    metrics = ["--metric", "PER", "--metric", "ser"]
    again = run(
        "evaluate", "--hypotheses", output, *data, *metrics, "--compare", trained / "test.b", "--json"
    )
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    assert result["lines"] == 12
    assert list(result["metrics"]) == ["per", "ser"]
    assert result["compared"]["metrics"]["per"]["score"] == 0
    assert result["metrics"]["per"]["score"] > 50
    assert result["compared"]["metrics"]["per"]["p"] < 0.01
    assert "search" not in result
    options = [
        "--metric",
        "chrf",
        "--beam",
        1,
        "--length-penalty",
        1,
        "--precision",
        "int8",
        "--device",
        "cpu",
    ]
    both = run("evaluate", model, *data, "--compare", model, *options, "--json")
    assert json.loads(both.stdout)["search"] == {"beam": 1, "length_penalty": 1, "precision": "int8"}
    compared = json.loads(both.stdout)["compared"]["metrics"]["chrf"]
    assert (compared["difference"], compared["p"]) == (0, 1)


def test_a_full_disk_costs_no_scores(trained):
    data = ["--source", trained / "test.a", "--reference", trained / "test.b", "--beam", 1]
    done = run("evaluate", trained / "run" / "final", *data, "--output", "/dev/full")
    assert done.returncode == 2
    assert "BLEU ↑" in done.stdout
    assert "/dev/full: No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_closed_output_is_named_before_the_work(tmp_path):
    (tmp_path / "text").write_text("a\n")
    line = f"{sys.executable} -m transduce evaluate --hypotheses text --reference text >&-"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output is closed" in done.stderr


def test_several_references(tmp_path):
    (tmp_path / "hypotheses").write_text("t o m a\nr e d\nx\n")
    (tmp_path / "tabs").write_text("t o m e\tt o m a\nr i d\ny\n")
    (tmp_path / "first").write_text("t o m e\nr i d\ny\n")
    (tmp_path / "second").write_text("t o m a\n\nx\n")
    metrics = ["--metric", "per", "--metric", "wer", "--metric", "ser"]
    common = ["evaluate", "--hypotheses", tmp_path / "hypotheses", *metrics, "--json"]

    def rates(*arguments):
        result = run(*common, *arguments)
        assert result.returncode == 0, result.stderr
        return [metric["score"] for metric in json.loads(result.stdout)["metrics"].values()]

    assert rates("--reference", tmp_path / "tabs", "--alternatives") == pytest.approx([25, 25, 200 / 3])
    files = ["--reference", tmp_path / "first", "--reference", tmp_path / "second"]
    assert rates(*files) == pytest.approx([100 / 8, 100 / 8, 100 / 3])


def test_a_tokenization_is_suggested_for_text_without_spaces(tmp_path):
    (tmp_path / "text").write_text(
        "今日はとても天気がいいですね。\n彼は学校へ行きました。\n", encoding="utf-8"
    )
    text = ["--hypotheses", tmp_path / "text", "--reference", tmp_path / "text"]
    done = run("evaluate", *text, "--metric", "BLEU")
    assert done.returncode == 0
    assert "BLEU ↑" in done.stdout
    assert done.stderr.startswith("warning: ")
    assert "--tokenize ja-mecab" in done.stderr
    assert run("evaluate", *text, "--metric", "bleu", "--tokenize", "char").stderr == ""


def test_mistakes_are_one_line(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "short").write_text("1 2\n")
    (tmp_path / "empty").write_text("".join("\n" if n == 6 else "1 2\n" for n in range(12)))
    (tmp_path / "broken").write_bytes(b"1 2\n" * 8 + b"1 \xff2\n" + b"1 2\n" * 3)
    model, a, b = trained / "run" / "final", trained / "test.a", trained / "test.b"
    short, empty, broken, missing = (tmp_path / name for name in ("short", "empty", "broken", "missing"))

    def score(source, target):
        return ["score", model, "--source", source, "--target", target]

    def evaluate(source, reference, *others):
        return ["evaluate", model, "--source", source, "--reference", reference, *others]

    unequal = [f"{short} has 1 lines", f"{b} has 12"]
    cases = [
        (score(short, b), unequal),
        (score(a, missing), [f"{missing}: No such file"]),
        (score(empty, b), [f"{empty}, line 7"]),
        (score(a, empty), [f"{empty}, line 7"]),
        (score(a, broken), [f"{broken}, line 9", "not UTF-8"]),
        (["score", trained / "run", *score(a, b)[2:]], [f"{trained / 'run'}"]),
        (["score", model, "--source", a], ["'--target'"]),
        ([*score(a, b), "--device", "abacus"], ["--device", "'abacus'"]),
        (evaluate(short, b), unequal),
        (evaluate(a, missing), [f"{missing}: No such file"]),
        (evaluate(missing, b), [f"{missing}: No such file"]),
        (evaluate(empty, b), [f"{empty}, line 7"]),
        (evaluate(a, empty), [f"{empty}, line 7", "reference"]),
        (evaluate(a, broken), [f"{broken}, line 9", "not UTF-8"]),
        (evaluate(a, b, "--metric", "blue"), ["'blue'", "bleu, chrf, ter, exact"]),
        (evaluate(a, b, "--tokenize", "14a"), ["'14a'", "--tokenize", "13a"]),
        (evaluate(a, b, "--tokenize", "moses"), ["moses", "--language"]),
        (evaluate(a, b, "--output", b), [f"--output {b}", "overwrite"]),
        (evaluate(a, b, "--beam", "0"), ["'--beam'"]),
        (["evaluate", "--reference", b], ["--hypotheses"]),
    ]
    for arguments, facts in cases:
        monkeypatch.setattr(sys, "argv", ["transduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        message = capsys.readouterr().err
        assert exit_info.value.code == 2, message
        assert message.startswith("error: "), message
        assert message.count("\n") == 1, message
        for fact in facts:
            assert fact in message
