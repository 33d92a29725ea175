"""Folders of Sockeye 3."""

import json

import pytest
import torch
from foreign import sockeye as toolkit
from foreign.parity import TEXT, check_saved_and_greedy, difference, write_codes

from transduce.errors import ArtifactError
from transduce.interop.formats import find_format, read_foreign

REFUSED = {"pre-and-post": "postprocess_sequence", "lhuc": "use_lhuc"}
SUPPORTED = [name for name in toolkit.VARIANTS if name not in REFUSED]


def written(folder, variant="pre"):
    toolkit.write(folder, toolkit.VARIANTS[variant])
    write_codes(folder)
    return lambda source, target: toolkit.logits(folder, source, target)


def changed(folder, change):
    """Apply a change to the weights."""
    state = torch.load(folder / "params.best", weights_only=True)
    change(state)
    torch.save(state, folder / "params.best")


@pytest.mark.parametrize("variant", SUPPORTED)
def test_logits_are_those_of_sockeye(variant, tmp_path):
    oracle = written(tmp_path, variant)
    assert find_format(tmp_path).name == "sockeye"
    assert difference(read_foreign(tmp_path).model, oracle, toolkit) < 1e-4


def test_a_gate_of_gelu(tmp_path):
    toolkit.write(tmp_path, toolkit.Shape(is_gated=True, activation="gelu"))
    write_codes(tmp_path)
    imported = read_foreign(tmp_path)
    assert difference(imported.model, lambda *ids: toolkit.logits(tmp_path, *ids), toolkit) < 1e-4


@pytest.mark.parametrize("variant", REFUSED)
def test_blocks_that_are_not_supported_are_named(variant, tmp_path):
    written(tmp_path, variant)
    with pytest.raises(ArtifactError, match=f"{REFUSED[variant]} = .*not supported"):
        read_foreign(tmp_path)


@pytest.mark.parametrize("variant", ["pre", "ssru"])
def test_translations_are_those_of_sockeye(variant, tmp_path):
    oracle = written(tmp_path / "theirs", variant)
    imported = read_foreign(tmp_path / "theirs" / "params.best")
    source = imported.tokenizer.encode_source([TEXT])[0]
    tokens = toolkit.vocabularies(toolkit.VARIANTS[variant])[0]
    assert source[:5] == [tokens.index(piece) for piece in ["he@@", "llo", "wor@@", "ld", "the"]]
    assert source[-1] == toolkit.EOS
    check_saved_and_greedy(imported, oracle, toolkit, tmp_path / "ours", source=source)


@pytest.mark.parametrize(
    ("old", "new", "option"),
    [
        ("use_lhuc: false", "use_lhuc: true", "use_lhuc"),
        (
            "config_length_task: null",
            "config_length_task: !LengthRatioConfig {num_layers: 1}",
            "config_length",
        ),
        ("neural_vocab_selection: null", "neural_vocab_selection: logit_max", "neural_vocab_selection"),
        ("dtype: float32", "dtype: int8", "dtype"),
        ("decoder_type: transformer", "decoder_type: other", "decoder_type"),
        ("num_factors: 1", "num_factors: 2", "num_factors"),
        ("act_type: relu", "act_type: tanh", "act_type"),
        ("depth_key_value: 24", "depth_key_value: 12", "depth_key_value"),
        ("positional_embedding_type: fixed", "positional_embedding_type: odd", "positional_embedding_type"),
        ("weight_tying_type: src_trg_softmax", "weight_tying_type: odd", "weight_tying_type"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(old, new, option, tmp_path):
    written(tmp_path)
    text = (tmp_path / "config").read_text()
    assert old in text
    (tmp_path / "config").write_text(text.replace(old, new))
    with pytest.raises(ArtifactError, match=f"{option}.* not supported"):
        read_foreign(tmp_path)


def test_weights_that_do_not_fit_are_named(tmp_path):
    written(tmp_path)
    name = "decoder.layers.0.enc_attention.ff_kv.weight"
    changed(tmp_path, lambda state: state.update({name: torch.zeros(24, 24)}))
    with pytest.raises(ArtifactError, match=r"ff_kv\.weight has shape"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda state: state.pop(name))
    with pytest.raises(ArtifactError, match=r"ff_k"):
        read_foreign(tmp_path)


def test_without_best_weights_the_newest_are_read(tmp_path):
    written(tmp_path)
    (tmp_path / "params.best").rename(tmp_path / "params.00012")
    (tmp_path / "params.00002").write_bytes(b"old")
    read_foreign(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"a": 5}', '{"<pad>": "0"}', "{" * 5000])
def test_damaged_vocabularies_are_one_line(text, tmp_path):
    written(tmp_path)
    (tmp_path / "vocab.src.0.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"vocab\.src\.0\.json"):
        read_foreign(tmp_path)


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    written(tmp_path)
    tokens = json.loads((tmp_path / "vocab.trg.0.json").read_text())
    (tmp_path / "vocab.trg.0.json").write_text(json.dumps({**tokens, "more": len(tokens)}))
    with pytest.raises(ArtifactError, match="19 tokens"):
        read_foreign(tmp_path)
