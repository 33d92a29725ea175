"""Forged tokenizers, ``torch.save`` files and folders of Hugging Face: refused, or used without harm."""

import json
import sys
from pathlib import Path

import pytest
from hostile import assert_no_problem, call_apart, invoke, invoke_apart, problems_of, thin_out
from hostile_damage import forge_header
from hostile_place import copy_folder, keep_place, make_place, write_lines
from hostile_safetensors import HEADERS, LIES, lie_about
from hostile_tokenizers import SLOW_LINE, hostile_tokenizers
from hostile_torch import FILES, valid_file, valid_legacy_file

TOKENIZERS = dict(hostile_tokenizers())
# Each of these broke something.
WORST = (
    "slow",
    "back",
    "forged",
    "empty ch",
    "strip",
    "no unknown",
    "unknown",
    "pieces",
    "id 2147",
    "nested",
)
SOME_TOKENIZERS = [
    name if name.startswith(WORST) else pytest.param(name, marks=pytest.mark.slow) for name in TOKENIZERS
]
LINES = [SLOW_LINE, "ab cd", "c d e f", "g h"] * 12


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = make_place(tmp_path_factory.mktemp("place"), ["pairs", "lm"])
    write_lines(folder / "lines", LINES)
    yield from keep_place(folder)


def write_tokenizer(name: str, path: Path) -> Path:
    path.write_text(TOKENIZERS[name], encoding="utf-8")
    return path


def train_and_use(place: Path, tokenizer: Path, run: Path, *, family: str) -> list[str]:
    """Train with a tokenizer and, if that is possible, use the model; return what is wrong."""
    train, use = {
        "transformer": (
            ["train", "--source", "lines", "--target", "lines"],
            ["translate", "--prefix", "b", "--input", "lines"],
        ),
        "gpt": (
            ["lm", "train", "--text", "lines"],
            ["lm", "generate", "--prompt", "b a b", "--max-length", "8"],
        ),
        "bert": (["mlm", "train", "--text", "lines"], ["mlm", "embed", "--input", "lines"]),
    }[family]
    options = ["--config", f"{family}.toml", "--tokenizer", tokenizer, "--steps", "1", "--out", run]
    done = invoke_apart(*train, *options, cwd=place)
    found = problems_of(done, is_report=True)
    if done.returncode == 0:
        found += problems_of(invoke_apart(*use, run / "final", cwd=place))
    return found


@pytest.mark.parametrize("name", SOME_TOKENIZERS)
@pytest.mark.parametrize("family", thin_out(["gpt", "transformer", "bert"], 3))
def test_a_hostile_tokenizer_is_refused_or_does_no_harm(place, tmp_path, name, family):
    tokenizer = write_tokenizer(name, tmp_path / "tokenizer.json")
    assert train_and_use(place, tokenizer, tmp_path / "run", family=family) == []


@pytest.mark.parametrize("name", thin_out(TOKENIZERS, 5))
@pytest.mark.parametrize("kind", thin_out(["lm", "pairs"], 2))
def test_a_hostile_tokenizer_in_a_model_folder_is_refused(place, tmp_path, name, kind):
    model = copy_folder(place / "runs" / kind / "final", tmp_path / "model")
    write_tokenizer(name, model / "tokenizer.json")
    use = {
        "pairs": ["translate", model, "--input", "three"],
        "lm": ["lm", "generate", model, "--max-length", "5"],
    }
    done = invoke(*use[kind], cwd=place)
    assert problems_of(done, codes=(2,), names=("tokenizer.json",)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_hostile_tokenizer_in_a_folder_without_hashes_does_no_harm(place, tmp_path, name):
    model = copy_folder(place / "runs" / "lm" / "final", tmp_path / "model")
    forge_header(model)
    write_tokenizer(name, model / "tokenizer.json")
    done = invoke_apart("lm", "generate", model, "--prompt", "b a b", "--max-length", "5", cwd=place)
    assert problems_of(done) == []


def read_torch_file(path: Path) -> None:
    """Exit with code 2 if a file is refused."""
    from transduce.errors import ArtifactError
    from transduce.interop.torch_pickle import read_torch

    try:
        read_torch(path)
    except ArtifactError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


@pytest.mark.parametrize("name", thin_out(FILES, 3))
def test_a_forged_file_of_torch_is_refused(tmp_path, name):
    FILES[name](tmp_path / "forged.pt")
    done = call_apart(read_torch_file, tmp_path / "forged.pt")
    assert problems_of(done, codes=(2,), names=("forged.pt",)) == []


@pytest.mark.parametrize("write", [valid_file, valid_legacy_file])
def test_what_forged_files_are_made_of_is_sound(tmp_path, write):
    write(tmp_path / "sound.pt")
    assert call_apart(read_torch_file, tmp_path / "sound.pt").returncode == 0


@pytest.fixture(scope="module")
def hugging(tmp_path_factory):
    """Return a folder with a GPT-2 and a BERT model, which can be imported."""
    pytest.importorskip("transformers")
    from hostile_hugging_face import FOLDERS

    folder = tmp_path_factory.mktemp("hugging")
    for name, save in FOLDERS.items():
        save(folder / name)
        done = invoke("import", folder / name, "--out", tmp_path_factory.mktemp("imported") / name)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("kind", thin_out(["gpt2", "bert"], 2))
@pytest.mark.parametrize("lie", [*LIES, *HEADERS])
def test_weights_of_hugging_face_that_lie_are_refused(hugging, tmp_path, kind, lie):
    folder = copy_folder(hugging / kind, tmp_path / kind)
    lie_about(folder / "model.safetensors", lie)
    done = invoke("import", folder, "--out", tmp_path / "out")
    may_be_ignored = lie in ("metadata of numbers",)
    names = ("model.safetensors", str(folder))
    assert problems_of(done, codes=(0, 2) if may_be_ignored else (2,), names=names) == []


@pytest.mark.parametrize("name", thin_out(TOKENIZERS, 6))
def test_a_hostile_tokenizer_of_hugging_face_does_no_harm(hugging, tmp_path, name):
    folder = copy_folder(hugging / "gpt2", tmp_path / "gpt2")
    write_tokenizer(name, folder / "tokenizer.json")
    done = invoke_apart("import", folder, "--out", tmp_path / "out")
    found = problems_of(done, is_report=True)
    if done.returncode == 0:
        found += problems_of(invoke_apart("lm", "generate", tmp_path / "out", "--prompt", "b a b"))
    assert found == []


@pytest.mark.parametrize("part", thin_out(range(5), 5))
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_fields_of_hugging_face_that_lie_are_refused(hugging, tmp_path, kind, part):
    from hostile_hugging_face import FIELDS, change_config

    known = json.loads((hugging / kind / "config.json").read_text())
    problems = {}
    for name, value in [field for field in FIELDS if field[0] in known][part::5]:
        folder = copy_folder(hugging / kind, tmp_path / kind)
        change_config(folder, name, value)
        done = invoke_apart("import", folder, "--out", tmp_path / f"out {len(problems)}")
        problems[f"{name} = {value!r}"] = problems_of(done, is_report=True)
    assert len(problems) > 9
    assert_no_problem(problems)
