"""Checkpoints of JoeyNMT."""

import pytest
import torch
import yaml
from foreign import joeynmt as toolkit
from foreign.parity import TEXT, check_saved_and_greedy, difference, write_codes

from transduce.errors import ArtifactError
from transduce.interop.formats import find_format, read_foreign


def written(folder, variant="pre"):
    toolkit.write(folder, toolkit.VARIANTS[variant])
    write_codes(folder)
    return lambda source, target: toolkit.logits(folder, source, target)


def configured(folder, change):
    """Apply a change to the configuration."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    change(config)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def changed(folder, change):
    """Apply a change to the weights."""
    content = torch.load(folder / "100.ckpt", weights_only=False)
    change(content["model_state"])
    torch.save(content, folder / "100.ckpt")


@pytest.mark.parametrize("variant", toolkit.VARIANTS)
def test_logits_are_those_of_joeynmt(variant, tmp_path):
    oracle = written(tmp_path, variant)
    assert find_format(tmp_path).name == "joeynmt"
    imported = read_foreign(tmp_path)
    assert difference(imported.model, oracle, toolkit) < 1e-4
    assert any("DeepNet" in note for note in imported.notes) == ("deepnet" in variant)


def test_norms_in_different_places_are_refused(tmp_path):
    written(tmp_path)
    configured(tmp_path, lambda config: config["model"]["decoder"].update(layer_norm="post"))
    with pytest.raises(ArtifactError, match="layer_norm = 'post'"):
        read_foreign(tmp_path)


def test_factors_without_final_norms_are_refused(tmp_path):
    written(tmp_path, "no-layer_norm")
    configured(tmp_path, lambda config: config["model"].update(initializer="xavier_normal"))
    with pytest.raises(ArtifactError, match="DeepNet"):
        read_foreign(tmp_path)


def test_a_checkpoint_of_version_1_has_norms_in_front_without_saying_so(tmp_path):
    written(tmp_path)
    expected = read_foreign(tmp_path).model.state_dict()

    def forget(config):
        for stack in ("encoder", "decoder"):
            del config["model"][stack]["layer_norm"]

    configured(tmp_path, forget)
    found = read_foreign(tmp_path).model
    assert found.config.norm == "pre"
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.state_dict().items())


@pytest.mark.parametrize("variant", ["pre-swish-unscaled", "post-deepnet-gelu"])
def test_translations_are_those_of_joeynmt(variant, tmp_path):
    oracle = written(tmp_path / "theirs", variant)
    imported = read_foreign(tmp_path / "theirs" / "best.ckpt")
    source = imported.tokenizer.encode_source([TEXT])[0]
    tokens = toolkit.vocabularies(toolkit.VARIANTS[variant])[0]
    assert source[:5] == [tokens.index(piece) for piece in ["he@@", "llo", "wor@@", "ld", "the"]]
    assert source[-1] == toolkit.EOS
    check_saved_and_greedy(imported, oracle, toolkit, tmp_path / "ours", source=source)


def test_lower_case_and_characters(tmp_path):
    written(tmp_path, "post-separate")
    configured(tmp_path, lambda config: config["data"]["src"].update(lowercase=True))
    tokenizer = read_foreign(tmp_path).tokenizer
    assert tokenizer.encode_source(["HELLO"]) == tokenizer.encode_source(["hello"])
    assert tokenizer.encode_target(["HALLO"]) != tokenizer.encode_target(["hallo"])
    tokens = ["<unk>", "<pad>", "<s>", "</s>", "▁", *"abcdefghijk"]
    (tmp_path / "trg_vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    configured(tmp_path, lambda config: config["data"]["trg"].update(level="char"))
    tokenizer = read_foreign(tmp_path).tokenizer
    assert tokenizer.encode_target(["ab c"]) == [[5, 6, 4, 7, 3]]
    assert tokenizer.decode([5, 6, 4, 7, 3]) == "ab c"


@pytest.mark.parametrize(
    ("option", "value"), [("type", "recurrent"), ("activation", "tanh"), ("num_heads", 4), ("ff_size", 41)]
)
def test_what_is_not_supported_is_refused_by_name(option, value, tmp_path):
    written(tmp_path)
    configured(tmp_path, lambda config: config["model"]["decoder"].update({option: value}))
    with pytest.raises(ArtifactError, match=f"{option} = .*not supported"):
        read_foreign(tmp_path)


def test_weights_that_do_not_fit_are_named(tmp_path):
    written(tmp_path)
    name = "encoder.layers.1.src_src_att.k_layer.bias"
    changed(tmp_path, lambda state: state.pop(name))
    with pytest.raises(ArtifactError, match=r"k_layer\.bias"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda state: state.update({name: torch.zeros(24), "encoder.more": torch.zeros(3)}))
    with pytest.raises(ArtifactError, match=r"encoder\.more"):
        read_foreign(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "- a", "a: [", "a: &x [*x]\nb: {<<: {c: 1}}", "model: 5", "!!python/object/apply:os.getcwd []"],
)
def test_damaged_configurations_are_one_line(text, tmp_path):
    written(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ArtifactError, match=r"config\.yaml") as caught:
        read_foreign(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(tmp_path):
    written(tmp_path)
    (tmp_path / "trg_vocab.txt").unlink()
    with pytest.raises(ArtifactError, match=r"trg_vocab\.txt"):
        read_foreign(tmp_path)
