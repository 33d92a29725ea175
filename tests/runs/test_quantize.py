import pytest

from exchange import LINES, write_model, write_multilingual
from inside import run
from transduce import artifact


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    write_model(folder, d_model=64)
    (folder / "README.md").write_text("my card")
    return folder


def test_what_is_lost_is_measured(model, tmp_path):
    text = tmp_path / "text"
    text.write_text("\n".join(LINES[:4]) + "\n")
    done = run("quantize", model, "--out", tmp_path / "int8", "--source", text, "--reference", text)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'int8'}\n"), done.stderr
    for measured in (
        "size of the weights: ",
        "time to load: ",
        "log-probabilities",
        "of 4 lines equal",
        "BLEU: ",
    ):
        assert measured in done.stderr
    assert (tmp_path / "int8" / "README.md").read_text() == "my card"
    assert run("translate", tmp_path / "int8", input="abc\n").returncode == 0


def test_a_model_with_several_languages(tmp_path):
    write_multilingual(tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(LINES[:4]) + "\n")
    done = run("quantize", tmp_path / "model", "--out", tmp_path / "int8")
    assert done.returncode == 0, done.stderr
    assert "log-probabilities" in done.stderr
    options = ("quantize", tmp_path / "model", "--out", tmp_path / "again", "--source", tmp_path / "text")
    undecided = run(*options)
    assert (undecided.returncode, "--target-lang" in undecided.stderr) == (2, True)
    assert not (tmp_path / "again").exists()
    compared = run(*options, "--target-lang", "b")
    assert "of 4 lines equal" in compared.stderr
    assert artifact.load_tokenizer(tmp_path / "again").special.target_language is None


def test_it_is_for_inference_only(model, tmp_path):
    assert run("quantize", model, "--out", tmp_path / "int8").returncode == 0
    (tmp_path / "text").write_text("\n".join(LINES) + "\n")
    files = ("--source", tmp_path / "text", "--target", tmp_path / "text")
    trained = run("train", *files, "--from", tmp_path / "int8", "--out", tmp_path / "run", "--steps", "1")
    again = run("quantize", tmp_path / "int8", "--out", tmp_path / "twice")
    for done in (trained, again):
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "rounded to int8" in done.stderr
    assert not (tmp_path / "twice").exists()


def test_a_model_is_not_replaced_by_its_own_rounding(model):
    done = run("quantize", model, "--out", model)
    assert (done.returncode, "--out" in done.stderr) == (2, True)


def test_reference_without_source(model, tmp_path):
    done = run("quantize", model, "--out", tmp_path / "int8", "--reference", "text")
    assert (done.returncode, "add --source" in done.stderr) == (2, True)
    assert not (tmp_path / "int8").exists()
