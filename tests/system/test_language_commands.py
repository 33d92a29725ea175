"""``transduce lm`` and ``transduce mlm``, as a user runs them."""

import json

import numpy as np
import pytest

from inside import run
from recorded_runs import run_code_of_card
from transduce.runs.reporting.card import make_card
from transduce.runs.reporting.record import read_record

CONFIG = """
[model]
family = "{family}"
layers = 1
d_model = 16
d_ff = 16
heads = 2
max_length = 24
[training]
precision = "float32"
max_tokens = 256
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text, and a model of each kind that has hardly seen it."""
    folder = tmp_path_factory.mktemp("language")
    (folder / "text").write_text("".join(f"the cat saw {n} mice\n" for n in range(200)))
    (folder / "classes.tsv").write_text(
        "".join(f"the cat saw {n} mice\t{'odd' if n % 2 else 'even'}\n" for n in range(60))
    )
    for name, family in (("lm", "gpt"), ("mlm", "bert")):
        (folder / f"{name}.toml").write_text(CONFIG.format(family=family))
        options = ["--config", folder / f"{name}.toml", "--steps", 3, "--vocabulary", 300]
        trained = run(name, "train", "--text", folder / "text", "--out", folder / name, *options)
        assert trained.returncode == 0, trained.stderr
        assert "step 3: validation" in trained.stdout
    return folder


@pytest.mark.parametrize(
    "command",
    [
        *("lm train", "lm generate", "lm perplexity"),
        *("mlm train", "mlm fill", "mlm embed", "mlm finetune", "mlm classify"),
    ],
)
def test_help_has_an_example(command):
    assert f"Example: transduce {command}" in run(*command.split(), "--help").stdout


def test_generate_and_perplexity(place):
    drawn = run("lm", "generate", place / "lm" / "final", "--prompt", "the cat", "--count", 2, "--top-k", 5)
    assert drawn.returncode == 0, drawn.stderr
    assert all(line.startswith("the cat") for line in drawn.stdout.splitlines())
    searched = run("lm", "generate", place / "lm" / "final", "--beam", 2, "--max-length", 5)
    assert searched.returncode == 0, searched.stderr
    measured = run("lm", "perplexity", place / "lm" / "final", "--text", place / "text")
    assert measured.stdout.startswith("perplexity ")
    assert "bits per byte" in measured.stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "lm",
            ["- gpt\n- text-generation\n", "decoder-only", "transduce lm generate lm/final"],
        ),
        ("mlm", ["- bert\n- fill-mask\n", "encoder-only", "transduce mlm fill mlm/final"]),
    ],
)
def test_report(place, name, words):
    done = run("report", place / name)
    assert done.returncode == 0, done.stderr
    card = (place / name / "final" / "README.md").read_text(encoding="utf-8")
    for part in [
        *words,
        "held-out texts, ",
        "| training texts |",
        "| epochs | less than 1 |",
        "| perplexity |",
    ]:
        assert part in card
    assert run_code_of_card(card, cwd=place).strip()
    for part in ("translat", "pairs", "sequence-to-sequence", "target"):
        assert part not in card


def test_train_again_resumes_only_if_asked(place):
    again = run("lm", "train", "--text", place / "text", "--out", place / "lm")
    assert again.returncode == 2
    assert "at step 3 of 3; add --resume" in again.stderr
    resumed = run("lm", "train", "--resume", "--out", place / "lm", "--steps", 4)
    assert resumed.returncode == 0, resumed.stderr
    assert "from step 3" in resumed.stdout


def test_fill_and_embed(place, tmp_path):
    filled = run("mlm", "fill", place / "mlm" / "final", "The [MASK] saw 3 [MASK].", "--count", 2)
    assert filled.returncode == 0, filled.stderr
    rows = [line.split("\t") for line in filled.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1]) > 0
    lines = "the cat\n\nthe mice\n"
    embedded = run("mlm", "embed", place / "mlm" / "final", "--precision", "float32", input=lines)
    vectors = np.array([json.loads(line) for line in embedded.stdout.splitlines()])
    assert vectors.shape == (3, 16)
    options = ["--output", tmp_path / "v.npy", "--precision", "float32"]
    run("mlm", "embed", place / "mlm" / "final", *options, input=lines)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy", allow_pickle=False), vectors, atol=1e-5)


def test_finetune_and_classify(place):
    command = ["mlm", "finetune", "--from", place / "mlm" / "final", "--pairs", place / "classes.tsv"]
    trained = run(*command, "--out", place / "classes", "--steps", 3)
    assert trained.returncode == 0, trained.stderr
    card = make_card(read_record(place / "classes"), "final")
    for part in ("- text-classification\n", "| epochs | ", "| texts seen | ", "| step | NLL | accuracy |"):
        assert part in card
    assert "odd" in run_code_of_card(card, cwd=place)
    told = run(
        "mlm", "classify", place / "classes" / "final", input="the cat saw 3 mice\nthe mice\nthe\tcat\n"
    )
    assert told.returncode == 0, told.stderr
    assert all(line.split("\t")[0] in ("odd", "even") for line in told.stdout.splitlines())
    assert told.stdout.count("\n") == 3
    three = run("mlm", "classify", place / "classes" / "final", input="the\tcat\tsaw\n")
    assert three.returncode == 2
    assert "3 texts" in three.stderr


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["lm", "train", "--out", "{}/x"], ["--text"]),
        (["lm", "train", "--text", "{}/nowhere", "--out", "{}/x"], ["{}/nowhere"]),
        (["lm", "train", "--text", "{}/empty", "--out", "{}/x"], ["{}/empty"]),
        (["mlm", "train", "--text", "{}/empty", "--out", "{}/x"], ["{}/empty"]),
        (["lm", "train", "--text", "{}/broken", "--out", "{}/x"], ["{}/broken, line 2", "byte 1"]),
        (["mlm", "train", "--text", "{}/text", "--tokenizer", "bpe", "--out", "{}/x"], ["bpe"]),
        (
            ["lm", "train", "--text", "{}/text", "--from", "{}/x", "--tokenizer", "byte", "--out", "{}/x"],
            ["--tokenizer"],
        ),
        (
            ["mlm", "train", "--text", "{}/text", "--from", "{}/mlm/final", "--cased", "--out", "{}/x"],
            ["--cased"],
        ),
        (["lm", "generate", "{}/lm/final", "--prompt", "cat " * 30], ["31 tokens", "24 tokens"]),
        (["lm", "generate", "{}/lm/final", "--prompt", "cat \udcff"], ["--prompt", "UTF-8"]),
        (["lm", "generate", "{}/lm/final", "--beam", "2", "--seed", "2"], ["--seed", "--beam"]),
        (["lm", "generate", "{}/lm/final", "--beam", "2", "--temperature", "0.5"], ["--temperature"]),
        (["lm", "generate", "{}/lm/final", "--length-penalty", "1"], ["--length-penalty"]),
        (
            ["lm", "generate", "{}/lm/final", "--min-length", "30", "--max-length", "5"],
            ["--max-length", "is 5", "--min-length", "is 30"],
        ),
        (["lm", "generate", "{}/lm/final", "--temperature", "0"], ["--temperature", "0.001"]),
        (["lm", "generate", "{}/lm/final", "--count", "2", "--lines", "2"], ["--count", "--lines"]),
        (["lm", "generate", "{}/lm/final", "--device", "gpu"], ["--device", "gpu"]),
        (["lm", "generate", "{}/mlm/final"], ["{}/mlm/final", "bert"]),
        (["lm", "generate", "{}/lm"], ["{}/lm", "config.json", "did you mean"]),
        (["lm", "perplexity", "{}/lm/final", "--text", "{}/empty"], ["{}/empty"]),
        (["mlm", "fill", "{}/mlm/final", "\udcff [MASK]"], ["UTF-8"]),
        (["mlm", "fill", "{}/mlm/final", "The cat."], ["[MASK]", "'The cat.'"]),
        (["mlm", "fill", "{}/lm/final", "[MASK]"], ["{}/lm/final", "gpt"]),
        (["mlm", "fill", "{}/mlm/final", "[MASK] " * 30], ["32 tokens", "24"]),
        (["mlm", "embed", "{}/mlm/final", "--input", "{}/text", "--pooling", "pooler"], ["pooler"]),
        (["mlm", "classify", "{}/mlm/final", "--input", "{}/text"], ["classes", "mlm finetune"]),
        (["mlm", "finetune", "--pairs", "{}/classes.tsv", "--out", "{}/x"], ["--from"]),
        (
            ["mlm", "finetune", "--from", "{}/mlm/final", "--pairs", "{}/text", "--out", "{}/x"],
            ["{}/text, line 1"],
        ),
        (["translate", "{}/lm/final", "--input", "{}/text"], ["{}/lm/final", "gpt"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(place, arguments, facts):
    (place / "empty").write_text("\n \n")
    (place / "broken").write_bytes(b"fine\n\xff\n")
    result = run(*(argument.replace("{}", str(place)) for argument in arguments))
    assert result.returncode == 2, result.stdout
    assert result.stderr.startswith("error: ")
    for fact in facts:
        assert fact.replace("{}", str(place)) in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (place / "x" / "run.toml").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["classify", "--input", "{}/text"],
        ["embed", "--input", "{}/text", "--pooling", "pooler"],
        ["embed", "--input", "{}/nowhere"],
        ["embed", "--input", "{}/broken"],
    ],
)
def test_a_mistake_costs_no_file_that_was_there(place, tmp_path, arguments):
    (place / "broken").write_bytes(b"fine\n\xff\n")
    target = tmp_path / "kept.npy"
    target.write_text("before")
    name, *options = (argument.replace("{}", str(place)) for argument in arguments)
    result = run("mlm", name, f"{place}/mlm/final", *options, "--output", str(target))
    assert result.returncode == 2, result.stdout
    assert target.read_text() == "before"
