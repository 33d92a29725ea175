"""Checkpoints of OpenNMT-py 2 and 3."""

import pytest
import torch
from foreign import opennmt as toolkit
from foreign.parity import TEXT, batch, check_saved_and_greedy, difference, write_codes

from transduce.errors import ArtifactError
from transduce.interop.formats import find_format, read_foreign


def written(folder, variant="v3"):
    folder.mkdir(exist_ok=True)
    content = toolkit.write(folder / "model_step_100.pt", toolkit.VARIANTS[variant])
    write_codes(folder)
    return content, lambda source, target: toolkit.logits(content, source, target)


def changed(folder, change):
    """Apply a change to the content of a checkpoint of version 3."""
    path = folder / "model_step_100.pt"
    content = torch.load(path, weights_only=False)
    change(content)
    torch.save(content, path)


@pytest.mark.parametrize("variant", toolkit.VARIANTS)
def test_logits_are_those_of_opennmt(variant, tmp_path):
    _, oracle = written(tmp_path, variant)
    assert find_format(tmp_path).name == "opennmt"
    assert difference(read_foreign(tmp_path / "model_step_100.pt").model, oracle, toolkit) < 1e-4


@pytest.mark.parametrize("variant", ["v3", "v2"])
def test_translations_are_those_of_opennmt(variant, tmp_path):
    _, oracle = written(tmp_path / "theirs", variant)
    imported = read_foreign(tmp_path / "theirs")
    source = imported.tokenizer.encode_source([TEXT])[0]
    tokens = toolkit.vocabularies(toolkit.VARIANTS[variant])[0]
    assert source[:5] == [tokens.index(piece) for piece in ["he@@", "llo", "wor@@", "ld", "the"]]
    assert source[-1] == tokens.index(".")  # no end token
    check_saved_and_greedy(imported, oracle, toolkit, tmp_path / "ours", source=source)


def test_a_source_vocabulary_without_end_token(tmp_path):
    _, oracle = written(tmp_path, "v3-gelu-concat-separate")

    def cut(content):
        name = "encoder.embeddings.make_embedding.emb_luts.0.weight"
        weight = content["model"][name]
        content["model"][name] = torch.cat((weight[:2], weight[4:]))
        del content["vocab"]["src"][2:4]

    changed(tmp_path, cut)
    imported = read_foreign(tmp_path)
    source, target = batch(toolkit)
    names = toolkit.vocabularies(toolkit.VARIANTS["v3-gelu-concat-separate"])[0]
    ours = torch.tensor(
        [[imported.tokenizer.source.plain.id_of(_ours(names[n])) for n in row] for row in source]
    )
    with torch.no_grad():
        found = imported.model(ours, target)
    torch.testing.assert_close(found, oracle(source, target), rtol=0, atol=1e-4)


def _ours(segment):
    """Return the name that a segment has in a tokenizer for BPE codes."""
    if segment.startswith("<"):
        return segment
    return segment.removesuffix("@@") if segment.endswith("@@") else f"{segment}</w>"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_relative_positions", 20),
        ("max_relative_positions", -1),
        ("relative_positions_buckets", 32),
        ("self_attn_type", "average"),
        ("encoder_type", "brnn"),
        ("copy_attn", True),
        ("num_kv", 1),
        ("num_experts", 8),
        ("parallel_residual", True),
        ("lora_layers", ["linear_values"]),
        ("position_encoding", False),
        ("generator_function", "sparsemax"),
        ("layer_norm", "odd"),
        ("pos_ffn_activation_fn", "tanh"),
        ("position_encoding_type", "Rotary"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(option, value, tmp_path):
    written(tmp_path)
    changed(tmp_path, lambda content: setattr(content["opt"], option, value))
    with pytest.raises(ArtifactError, match=f"{option} = .*not supported"):
        read_foreign(tmp_path)


def test_damage_is_named(tmp_path):
    written(tmp_path)
    table = "encoder.embeddings.make_embedding.pe.pe"
    changed(tmp_path, lambda content: content["model"].update({table: torch.ones(50, 1, 24)}))
    with pytest.raises(ArtifactError, match=r"pe\.pe has other positions"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: content["model"].pop(table))
    read_foreign(tmp_path)
    changed(tmp_path, lambda content: content["vocab"]["tgt"].append("more"))
    with pytest.raises(ArtifactError, match=r"target vocabulary .* 19 tokens"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: content["vocab"].update(tgt={"no": "list"}))
    with pytest.raises(ArtifactError, match="no vocabulary 'tgt'"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: content.update(opt=None))
    with pytest.raises(ArtifactError, match="no options"):
        read_foreign(tmp_path)


def test_a_bias_that_the_options_promise_must_be_there(tmp_path):
    written(tmp_path)
    changed(
        tmp_path, lambda content: content["model"].pop("encoder.transformer.0.self_attn.final_linear.bias")
    )
    with pytest.raises(ArtifactError, match=r"final_linear\.bias"):
        read_foreign(tmp_path)


def test_the_newest_checkpoint_of_a_folder_is_read(tmp_path):
    written(tmp_path)
    toolkit.write(tmp_path / "model_step_90.pt", toolkit.VARIANTS["v3-gelu-concat-separate"])
    assert read_foreign(tmp_path).model.config.activation == "relu"


def test_codes_are_found_by_their_names_in_the_options(tmp_path):
    written(tmp_path)
    (tmp_path / "bpe.codes").rename(tmp_path / "joint")
    with pytest.raises(ArtifactError, match="BPE codes"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: setattr(content["opt"], "src_subword_model", "/home/me/joint"))
    assert read_foreign(tmp_path).tokenizer.joint


def test_pyonmttok_is_refused(tmp_path):
    written(tmp_path)
    changed(tmp_path, lambda content: content["vocab"]["src"].__setitem__(9, "￭s"))
    with pytest.raises(ArtifactError, match="pyonmttok"):
        read_foreign(tmp_path)
