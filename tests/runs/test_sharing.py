import shutil
import sys
from types import SimpleNamespace

import pytest

from exchange import write_model
from inside import run
from transduce import artifact
from transduce.runs.sharing import is_repository

FILES = ["README.md", "config.json", "model.safetensors", "tokenizer.json"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    write_model(folder)
    return folder


@pytest.fixture
def model(original, tmp_path):
    """A copy of its own."""
    return shutil.copytree(original, tmp_path / "model")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_to_a_folder_and_back(model, tmp_path):
    (model / "notes.txt").write_text("not part of the model")
    place, out = tmp_path / "shelf" / "en-de", tmp_path / "out"
    pushed = run("push", model, place)
    assert (pushed.returncode, pushed.stdout) == (0, f"{place}\n"), pushed.stderr
    assert names(place) == FILES
    card = (place / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transduce\n")
    assert "# en-de" in card
    assert run("pull", place, "--out", out).returncode == 0
    for name in FILES[1:]:
        assert (out / name).read_bytes() == (model / name).read_bytes()
    assert (out / "README.md").read_text() == card
    assert names(tmp_path) == ["model", "out", "shelf"]
    assert names(tmp_path / "shelf") == ["en-de"]


def test_a_card_of_ones_own_is_kept(model, tmp_path):
    (model / "README.md").write_text("mine")
    assert run("push", model, tmp_path / "place").returncode == 0
    assert (tmp_path / "place" / "README.md").read_text() == "mine"


def test_a_model_is_replaced_and_nothing_else(model, tmp_path):
    place = tmp_path / "place"
    other = tmp_path / "other"
    write_model(other, d_ff=48)
    assert run("push", other, place).returncode == 0
    assert run("push", model, place).returncode == 0
    assert (place / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    (place / "mine").write_text("kept")
    refused = run("push", other, place)
    assert (refused.returncode, "'mine'" in refused.stderr) == (2, True)
    assert (place / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert run("pull", place, "--out", place).returncode == 2
    assert names(tmp_path) == ["model", "other", "place"]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_damage_is_refused(model, tmp_path, name):
    data = bytearray((model / name).read_bytes())
    data[len(data) // 2] ^= 1
    (model / name).write_bytes(data)
    for words in (("push", model, tmp_path / "place"), ("pull", model, "--out", tmp_path / "place")):
        done = run(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert name in done.stderr
    assert names(tmp_path) == ["model"]


def test_a_model_without_its_tokenizer_is_refused(model, tmp_path):
    (model / "tokenizer.json").unlink()
    done = run("push", model, tmp_path / "place")
    assert (done.returncode, "tokenizer.json" in done.stderr) == (2, True)
    assert names(tmp_path) == ["model"]


class Hub:
    """The functions of huggingface_hub that are used, with folders as repositories."""

    def __init__(self, folder):
        self.folder, self.calls = folder, []

    def create_repo(self, name, *, private=None, exist_ok=False):
        self.calls.append((name, private, exist_ok))
        return f"https://huggingface.co/{name}"

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)

    def snapshot_download(self, name, *, allow_patterns):
        if not (self.folder / name).exists():
            raise OSError("401 Client Error.\nRepository Not Found")
        return str(self.folder / name)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    functions = {name: getattr(hub, name) for name in ("create_repo", "upload_folder", "snapshot_download")}
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(**functions))
    return hub


def test_to_the_hub_and_back(model, tmp_path, hub):
    pushed = run("push", model, "me/en-de", "--private", cwd=tmp_path)
    assert (pushed.returncode, pushed.stdout) == (0, "https://huggingface.co/me/en-de\n"), pushed.stderr
    assert hub.calls == [("me/en-de", True, True)]
    assert names(hub.folder / "me" / "en-de") == FILES
    assert "transduce pull me/en-de" in (hub.folder / "me" / "en-de" / "README.md").read_text()
    pulled = run("pull", "me/en-de", "--out", tmp_path / "out", cwd=tmp_path)
    assert pulled.returncode == 0, pulled.stderr
    assert artifact.load(tmp_path / "out").config == artifact.load(model).config
    missing = run("pull", "me/other", "--out", tmp_path / "new", cwd=tmp_path)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert "me/other" in missing.stderr
    assert names(tmp_path) == ["hub", "model", "out"]


def test_damage_on_the_hub_is_refused(model, tmp_path, hub):
    run("push", model, "me/en-de", cwd=tmp_path)
    (hub.folder / "me" / "en-de" / "tokenizer.json").write_text("{}")
    done = run("pull", "me/en-de", "--out", tmp_path / "out", cwd=tmp_path)
    assert (done.returncode, "tokenizer.json" in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_without_the_package(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for words in (("push", model, "me/en-de"), ("pull", "me/en-de", "--out", tmp_path / "out")):
        done = run(*words, cwd=tmp_path)
        assert (done.returncode, "pip install huggingface_hub" in done.stderr) == (2, True)
    assert names(tmp_path) == ["model"]


def test_what_is_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert is_repository("me/en-de")
    assert is_repository("Helsinki-NLP/opus-mt-en-de")
    for folder in ("models/en-de", "./me/en-de", "/mnt/en-de", "en-de", "../me/x", "a/b/c", "~/en-de", ""):
        assert not is_repository(folder)
