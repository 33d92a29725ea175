import json
import os
import subprocess

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from builders import random_tokens, small_config, small_model
from transduce import artifact
from transduce.config import Vocabulary
from transduce.errors import ArtifactError
from transduce.models.build import build


@given(
    share=st.sampled_from(["all", "target", "none"]),
    norm=st.sampled_from(["post", "pre"]),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
    activation=st.sampled_from(["relu", "gelu", "swiglu"]),
)
@settings(max_examples=20)
def test_saved_is_loaded(share, norm, positions, activation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = small_model(share=share, norm=norm, positions=positions, activation=activation)
    artifact.save(model, folder)
    loaded = artifact.load(folder)
    assert (loaded.config, loaded.vocabulary) == (model.config, model.vocabulary)
    source, target = random_tokens(2, 5), random_tokens(2, 6, seed=1)
    assert torch.equal(loaded(source, target), model(source, target))
    assert all(parameter.requires_grad for parameter in loaded.parameters())


@pytest.mark.parametrize(("share", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_shared_matrices_are_stored_once_and_stay_shared(share, matrices, tmp_path):
    artifact.save(small_model(share=share), tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert sum("embedding" in name or name == "output.weight" for name in stored) == matrices
    model = artifact.load(tmp_path / "model")
    used = {model.source_embedding.weight, model.target_embedding.weight, model.output.weight}
    assert len(used) == matrices


def test_separate_vocabularies(tmp_path):
    model = build(small_config(share="target"), Vocabulary(source=11, target=13, pad=4, bos=5, eos=6), seed=0)
    artifact.save(model, tmp_path / "model")
    assert artifact.load(tmp_path / "model").vocabulary == model.vocabulary


def test_an_older_model_is_replaced_and_nothing_is_left_behind(tmp_path):
    artifact.save(small_model(seed=0), tmp_path / "model")
    newer = small_model(seed=1)
    artifact.save(newer, tmp_path / "model")
    loaded = artifact.load(tmp_path / "model")
    assert torch.equal(loaded.output.weight, newer.output.weight)
    assert names(tmp_path) == ["model"]


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="exists and is not a model folder"):
        artifact.save(small_model(), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    (tmp_path / "file").write_text("text")
    with pytest.raises(ArtifactError, match="exists and is not a model folder"):
        artifact.save(small_model(), tmp_path / "file")


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def folder(tmp_path):
    artifact.save(small_model(), tmp_path / "model")
    return tmp_path / "model"


def refused(folder) -> str:
    with pytest.raises(ArtifactError) as caught:
        artifact.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        *tables, last = key.split("__")
        table = config
        for name in tables:
            table = table[name]
        table[last] = value
    (folder / "config.json").write_text(json.dumps(config))


def test_wrong_folders(folder, tmp_path):
    assert "is not a folder" in refused(tmp_path / "missing")
    assert "is not a folder" in refused(folder / "config.json")
    assert "is not a model folder: it has no config.json" in refused(tmp_path)


def test_foreign_and_broken_configs(folder):
    edit(folder, format=99)
    assert "has format 99, but this version reads up to 1; upgrade" in refused(folder)
    edit(folder, format=1, model__heds=3)
    assert "unknown key 'model.heds'; did you mean 'heads'?" in refused(folder)
    (folder / "config.json").write_text('{"architectures": ["BertModel"]}')
    assert "was not written by transduce" in refused(folder)
    (folder / "config.json").write_text("[1, 2]")
    assert "was not written by transduce" in refused(folder)
    (folder / "config.json").write_text('{"format": 1,')
    assert "cannot read" in refused(folder)
    (folder / "config.json").write_bytes(b"\xff\xfe")
    assert "cannot read" in refused(folder)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_truncated_weights(folder, kept):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    assert "model.safetensors is damaged" in refused(folder)


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in refused(folder)


def test_weights_that_do_not_fit(folder):
    weights = load_file(folder / "model.safetensors")
    edit(folder, model__d_ff=33)
    assert "inner.weight is [32, 16], but config.json calls for [33, 16]" in refused(folder)
    edit(folder, model__d_ff=32, model__encoder_layers=3)
    assert "lacks encoder.layers.2." in refused(folder)
    edit(folder, model__encoder_layers=1)
    assert "has encoder.layers.1." in refused(folder)
    edit(folder, model__encoder_layers=2)
    save_file({**weights, "extra": torch.zeros(1)}, folder / "model.safetensors")
    assert "has extra, which config.json does not call for" in refused(folder)


def test_an_interrupted_replacement_is_explained(folder):
    folder.rename(folder.with_name(".model.replaced"))
    assert "a save was interrupted" in refused(folder)


def test_a_failed_save_keeps_the_old_model(folder, monkeypatch):
    before = artifact.load(folder).output.weight
    monkeypatch.setattr(artifact, "_sync", lambda path: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ArtifactError, match=r"cannot write .*: No space left; make room"):
        artifact.save(small_model(seed=1), folder)
    assert torch.equal(artifact.load(folder).output.weight, before)
    assert names(folder.parent) == ["model"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], check=False).returncode:
        pytest.skip("a small disk could not be mounted")
    try:
        artifact.save(small_model(), disk / "model")
        before = artifact.load(disk / "model").output.weight.clone()
        with pytest.raises(ArtifactError, match="cannot write") as caught:
            artifact.save(small_model(d_model=128), disk / "model")
        assert "\n" not in str(caught.value)
        assert torch.equal(artifact.load(disk / "model").output.weight, before)
        assert names(disk) == ["model"]
    finally:
        subprocess.run(["umount", disk], check=True)
