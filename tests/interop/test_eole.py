"""Folders of eole."""

import json

import pytest
import torch
from foreign import eole as toolkit
from foreign.parity import TEXT, check_saved_and_greedy, difference, write_codes
from safetensors.torch import load_file, save_file

from transduce.errors import ArtifactError
from transduce.interop.formats import find_format, read_foreign


def written(folder, variant="biases"):
    toolkit.write(folder, toolkit.VARIANTS[variant])
    write_codes(folder)
    return lambda source, target: toolkit.logits(folder, source, target)


def configured(folder, change):
    """Apply a change to the table of the model in the configuration."""
    config = json.loads((folder / "config.json").read_text())
    change(config["model"])
    (folder / "config.json").write_text(json.dumps(config))


def weighted(folder, change):
    """Apply a change to the weights."""
    path = folder / "model.00.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path)


@pytest.mark.parametrize("variant", toolkit.VARIANTS)
def test_logits_are_those_of_eole(variant, tmp_path):
    oracle = written(tmp_path, variant)
    assert find_format(tmp_path).name == "eole"
    assert difference(read_foreign(tmp_path).model, oracle, toolkit) < 1e-4


def test_translations_are_those_of_eole(tmp_path):
    oracle = written(tmp_path / "theirs", "biases")
    imported = read_foreign(tmp_path / "theirs")
    source = imported.tokenizer.encode_source([TEXT])[0]
    tokens = toolkit.vocabularies(toolkit.VARIANTS["biases"])[0]
    assert source[:5] == [tokens.index(piece) for piece in ["he@@", "llo", "wor@@", "ld", "the"]]
    assert source[-1] == tokens.index(".")  # no end token
    check_saved_and_greedy(imported, oracle, toolkit, tmp_path / "ours", source=source)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("architecture", "transformer_lm"),
        ("position_encoding_type", "Rotary"),
        ("position_encoding_type", "Relative"),
        ("num_kv", 1),
        ("num_experts", 4),
        ("parallel_residual", True),
        ("sliding_window", 128),
        ("layer_norm", "gemma-rms"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(option, value, tmp_path):
    written(tmp_path)

    def change(model):
        for table in (model, model["encoder"], model["decoder"]):
            table[option] = value

    configured(tmp_path, change)
    with pytest.raises(ArtifactError, match=f"{option} = .*not supported"):
        read_foreign(tmp_path)


def test_options_of_one_stack_only_are_refused(tmp_path):
    written(tmp_path)
    configured(tmp_path, lambda model: model["decoder"].update(num_kv=1))
    with pytest.raises(ArtifactError, match="num_kv = 1"):
        read_foreign(tmp_path)


def test_weights_that_do_not_fit_are_named(tmp_path):
    written(tmp_path)
    name = "decoder.transformer_layers.0.layer_scalar"
    weighted(tmp_path, lambda state: state.update({name: torch.full((1,), 0.5)}))
    with pytest.raises(ArtifactError, match="layer_scalar"):
        read_foreign(tmp_path)
    weighted(tmp_path, lambda state: state.pop(name))
    read_foreign(tmp_path)
    weighted(tmp_path, lambda state: state.pop("encoder.transformer_layers.1.mlp.down_proj.bias"))
    with pytest.raises(ArtifactError, match=r"down_proj\.bias"):
        read_foreign(tmp_path)
    (tmp_path / "model.00.safetensors").write_bytes(b"not a model")
    with pytest.raises(ArtifactError, match="damaged"):
        read_foreign(tmp_path)


def test_weights_in_several_files(tmp_path):
    written(tmp_path)
    path = tmp_path / "model.00.safetensors"
    state = load_file(path)
    parts = [{n: t for n, t in state.items() if n.startswith("enc") is first} for first in (True, False)]
    expected = read_foreign(tmp_path).model.state_dict()
    for number, part in enumerate(parts):
        save_file(part, tmp_path / f"model.{number:02d}.safetensors")
    found = read_foreign(tmp_path).model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_codes_are_found_by_their_names_in_the_configuration(tmp_path):
    written(tmp_path)
    (tmp_path / "bpe.codes").rename(tmp_path / "joint")
    with pytest.raises(ArtifactError, match="BPE codes"):
        read_foreign(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["transforms_configs"] = {"bpe": {"src_subword_model": "${MODEL_PATH}/joint"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_foreign(tmp_path).tokenizer.joint


@pytest.mark.parametrize("text", ["", "[]", '{"src": 5}', "{" * 5000])
def test_damaged_vocabularies_are_one_line(text, tmp_path):
    written(tmp_path)
    (tmp_path / "vocab.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"vocab\.json"):
        read_foreign(tmp_path)
