"""Models by their id on the Hub, from a cache laid out as the package does it; there is no network."""

import os
import subprocess
import sys

import pytest

from transduce.interop.hub import looks_like_id

pytest.importorskip("huggingface_hub")
transformers = pytest.importorskip("transformers")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "the", "cat"]


def fill(cache):
    """Write a model to the cache."""
    repository = cache / "models--somebody--tiny-bert"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (snapshot / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=9, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(snapshot)


def run_import(name, cache, out, **environment):
    """A process of its own, because the package reads its settings when it is imported."""
    return subprocess.run(
        [sys.executable, "-m", "transduce", "import", name, "--out", str(out)],
        env={**os.environ, "HF_HUB_CACHE": str(cache), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_from_the_cache(tmp_path):
    fill(tmp_path / "cache")
    done = run_import("somebody/tiny-bert", tmp_path / "cache", tmp_path / "model", HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert "bert: 1 layers" in done.stderr
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_not_in_the_cache(tmp_path):
    done = run_import("somebody/other", tmp_path / "cache", tmp_path / "model", HF_HUB_OFFLINE="1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: somebody/other")
    assert "HF_HUB_OFFLINE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ids():
    for name in ("Helsinki-NLP/opus-mt-en-de", "facebook/nllb-200-distilled-600M", "a/b.c_d"):
        assert looks_like_id(name)
    for name in ("model", "/a/b", "./a/b", "a/b/c", "a/", "~/a", "a b/c", "../b"):
        assert not looks_like_id(name)


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("GatedRepoError", "consent"),
        ("RepositoryNotFoundError", "no such model"),
        ("OSError", "disk is full"),
    ],
)
def test_errors_are_one_line(error, named, monkeypatch):
    import huggingface_hub
    from huggingface_hub import errors

    from transduce.errors import ArtifactError
    from transduce.interop.hub import download

    kind = getattr(errors, error, OSError)

    class Raised(kind):
        def __init__(self):
            Exception.__init__(self, "the disk is full\nand more")

        def __str__(self):
            return "the disk is full\nand more"

    def fail(*arguments, **options):
        raise Raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ArtifactError, match=named) as raised:
        download("somebody/model")
    assert "somebody/model" in str(raised.value)
    assert "and more" not in str(raised.value)


def test_pickles_are_only_downloaded_without_safetensors(tmp_path, monkeypatch):
    import huggingface_hub

    from transduce.interop.hub import download

    asked = []

    def snapshot(name, allow_patterns):
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert download("somebody/model") == tmp_path
    assert not any(pattern.endswith("bin") for pattern in asked[0])
    assert "pytorch_model.bin" in asked[1]
    (tmp_path / "model.safetensors").touch()
    asked.clear()
    download("somebody/model")
    assert len(asked) == 1
