import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from builders import random_tokens, small_config, small_model
from transduce import artifact
from transduce.artifact import ADAPTER, ADAPTER_WEIGHTS
from transduce.artifact.adapter import load_merged
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.errors import ArtifactError
from transduce.models.build import build
from transduce.nn.adapter import adapter_parameters

SOURCE, TARGET = random_tokens(2, 6), random_tokens(2, 5, seed=1)


@pytest.fixture
def base(tmp_path):
    artifact.save(small_model(), tmp_path / "base", longest_source=30)
    return tmp_path / "base"


@pytest.fixture
def adapter(base, tmp_path):
    """With B that is not zero any more."""
    header = artifact.create_adapter(base, tmp_path / "adapter", rank=2, alpha=4.0, seed=1)
    weights = adapter_parameters(artifact.load_adapted(tmp_path / "adapter"))
    generator = torch.Generator().manual_seed(1)
    trained = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in weights.items()
    }
    artifact.save_adapter(header, trained, tmp_path / "adapter", longest_source=12)
    return tmp_path / "adapter"


def logits(folder):
    return artifact.load(folder)(SOURCE, TARGET)


def test_a_new_adapter_is_its_model(base, tmp_path):
    artifact.create_adapter(base, tmp_path / "new", rank=2, alpha=4.0, seed=1)
    assert torch.equal(logits(tmp_path / "new"), logits(base))


def test_a_saved_adapter_is_loaded_as_it_was(base, adapter):
    model = artifact.load_adapted(adapter)
    stored = load_file(adapter / ADAPTER_WEIGHTS)
    own = adapter_parameters(model)
    assert own.keys() == stored.keys()
    assert all(torch.equal(own[name], stored[name]) for name in stored)
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == own.keys()
    torch.testing.assert_close(model(SOURCE, TARGET), logits(adapter), rtol=1e-5, atol=1e-5)
    assert (logits(adapter) - logits(base)).abs().max() > 0.01


def test_an_adapter_folder_has_the_header_of_its_model(base, adapter):
    header = artifact.read_header(adapter)
    assert header.model == artifact.read_header(base).model
    assert header.longest_source == 12
    assert sorted(path.name for path in adapter.iterdir()) == [ADAPTER, ADAPTER_WEIGHTS]


def test_the_tokenizer_is_that_of_the_model(tmp_path):
    side = train_side_tokenizer(iter(["abc", "cab"]), kind="char", size=50)
    tokenizer = TokenizerPair(side, side)
    artifact.save(build(small_config(), tokenizer.vocabulary, seed=1), tmp_path / "base", tokenizer)
    artifact.create_adapter(tmp_path / "base", tmp_path / "adapter", rank=2, alpha=4.0, seed=1)
    assert artifact.load_tokenizer(tmp_path / "adapter").is_like(tokenizer)
    artifact.merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    assert artifact.load_tokenizer(tmp_path / "merged").is_like(tokenizer)


def test_merging_gives_a_plain_model_folder(base, adapter, tmp_path):
    artifact.merge_adapter(adapter, tmp_path / "merged")
    expected = logits(adapter)
    shutil.rmtree(base)
    assert torch.equal(logits(tmp_path / "merged"), expected)
    assert artifact.read_header(tmp_path / "merged").longest_source == 12


def test_weights_in_half_precision_are_merged_in_float32(tmp_path):
    artifact.save(small_model().half(), tmp_path / "base")
    artifact.create_adapter(tmp_path / "base", tmp_path / "adapter", rank=2, alpha=4.0, seed=1)
    assert {parameter.dtype for parameter in artifact.load(tmp_path / "adapter").parameters()} == {
        torch.float32
    }


def test_a_model_that_moved_is_found_by_an_edited_path(base, adapter, tmp_path):
    expected = logits(adapter)
    base.rename(tmp_path / "moved")
    with pytest.raises(ArtifactError, match=r"base.*not there.*adapter\.json"):
        artifact.load(adapter)
    assert torch.equal(load_merged(adapter, base=tmp_path / "moved")(SOURCE, TARGET), expected)
    edit(adapter, base="../moved")
    assert torch.equal(logits(adapter), expected)


def edit(adapter, **changes):
    header = json.loads((adapter / ADAPTER).read_text())
    (adapter / ADAPTER).write_text(json.dumps({**header, **changes}))


def test_another_model_in_the_place_of_the_first_is_refused(base, adapter):
    artifact.save(small_model(seed=1), base)
    with pytest.raises(ArtifactError, match="another hash"):
        artifact.load(adapter)


def test_the_same_weights_saved_again_are_the_same_model(base, adapter):
    expected = logits(adapter)
    artifact.save(small_model(), base)
    assert torch.equal(logits(adapter), expected)


@pytest.mark.parametrize(
    "changes", [{"rank": 3}, {"alpha": 1.0}, {"layers": []}, {"base_hash": "blake2b:00"}]
)
def test_edits_that_change_the_meaning_are_refused(adapter, changes):
    edit(adapter, **changes)
    with pytest.raises(ArtifactError, match="undo the edit"):
        artifact.load(adapter)


@pytest.mark.parametrize("position", [10, 2000, -1])
def test_damaged_weights_are_refused(adapter, position):
    content = bytearray((adapter / ADAPTER_WEIGHTS).read_bytes())
    content[position] ^= 1
    (adapter / ADAPTER_WEIGHTS).write_bytes(content)
    with pytest.raises(ArtifactError):
        artifact.load(adapter)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"base_hash": 1}', b'{"format": 99, "base_hash": ""}', b"[" * 10**5],
)
def test_a_damaged_header_is_refused(adapter, content):
    (adapter / ADAPTER).write_bytes(content)
    with pytest.raises(ArtifactError, match=ADAPTER):
        artifact.load(adapter)


@pytest.mark.parametrize("name", [ADAPTER_WEIGHTS])
def test_a_missing_file_is_named(adapter, name):
    (adapter / name).unlink()
    with pytest.raises(ArtifactError, match=name):
        artifact.load(adapter)


def hostile(adapter, **changes):
    """Save an adapter whose header lies, in both places."""
    header = artifact.read_adapter_header(adapter).model_copy(update=changes)
    artifact.save_adapter(header, load_file(adapter / ADAPTER_WEIGHTS), adapter)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 10_000_000},
        {"layers": ["encoder.layers.0.feed_forward.inner"]},
        {"layers": ["encoder"]},
        {"layers": []},
        {"base": "/dev/zero"},
        {"base": "."},
        {"base": "a\0b"},
        {"base": "x" * 10_000},
    ],
)
def test_a_header_that_lies_is_refused(adapter, changes):
    hostile(adapter, **changes)
    with pytest.raises(ArtifactError):
        artifact.load(adapter)


def test_an_adapter_of_an_adapter_is_refused(adapter, tmp_path):
    with pytest.raises(ArtifactError, match="transduce merge"):
        artifact.create_adapter(adapter, tmp_path / "second", rank=2, alpha=4.0, seed=1)


def test_a_save_that_was_interrupted_leaves_the_old_adapter_or_the_new_one(adapter, monkeypatch):
    header, weights = artifact.read_adapter_header(adapter), load_file(adapter / ADAPTER_WEIGHTS)
    new = {name: 2 * tensor for name, tensor in weights.items()}
    replace, outcomes = type(adapter).replace, []
    for allowed in (0, 1):
        left = [allowed]

        def limited(path, target, left=left):
            if not left[0]:
                raise OSError(28, os.strerror(28))
            left[0] -= 1
            return replace(path, target)

        monkeypatch.setattr("pathlib.Path.replace", limited)
        with pytest.raises(ArtifactError, match="cannot write"):
            artifact.save_adapter(header, new, adapter)
        monkeypatch.undo()
        found = adapter_parameters(artifact.load_adapted(adapter))
        outcomes.append(
            [torch.equal(found[name], values[name]) for values in (weights, new) for name in [min(new)]]
        )
    assert outcomes == [[True, False], [False, True]]


def test_folders_of_others_are_not_overwritten(base, adapter, tmp_path):
    with pytest.raises(ArtifactError, match="not an adapter folder"):
        artifact.create_adapter(base, base, rank=2, alpha=4.0, seed=1)
    with pytest.raises(ArtifactError, match="not a model folder"):
        artifact.merge_adapter(adapter, adapter)
    with pytest.raises(ArtifactError, match="not an adapter folder"):
        artifact.merge_adapter(base, tmp_path / "merged")
    assert artifact.is_part_of_a_model(adapter / ADAPTER)
    assert not artifact.is_part_of_a_model(tmp_path / ADAPTER)
