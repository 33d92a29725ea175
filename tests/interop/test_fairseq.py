"""Checkpoints of fairseq."""

import shutil

import pytest
import torch
from foreign import fairseq as toolkit
from foreign.parity import check_saved_and_greedy, difference, write_codes

from inside import run
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.formats import find_format, read_foreign
from transduce.interop.torch_pickle import read_torch


def oracle_of(folder):
    content = read_torch(folder / "checkpoint_best.pt")
    return lambda source, target: toolkit.logits(content, source, target)


def written(folder, variant="pre-tied-decoder"):
    toolkit.write(folder, toolkit.VARIANTS[variant])
    write_codes(folder)
    return oracle_of(folder)


def changed(folder, change):
    """Apply a change to the checkpoint's content."""
    path = folder / "checkpoint_best.pt"
    content = torch.load(path, weights_only=False)
    change(content)
    torch.save(content, path)


@pytest.mark.parametrize("variant", toolkit.VARIANTS)
def test_logits_are_those_of_fairseq(variant, tmp_path):
    oracle = written(tmp_path, variant)
    assert find_format(tmp_path).name == "fairseq"
    assert difference(read_foreign(tmp_path).model, oracle, toolkit) < 1e-4


def test_translations_are_those_of_fairseq(tmp_path):
    oracle = written(tmp_path / "theirs")
    imported = read_foreign(tmp_path / "theirs" / "checkpoint_best.pt")
    tokens = toolkit.vocabularies(toolkit.VARIANTS["pre-tied-decoder"])[0]
    pieces = ["he@@", "llo", "wor@@", "ld", "the", "c@@", "at", "s@@"]
    source = imported.tokenizer.encode_source(["hello world the cats sit ."])[0]
    assert source[:5] == [tokens.index(piece) for piece in pieces[:5]]
    assert source[-1] == toolkit.EOS
    check_saved_and_greedy(imported, oracle, toolkit, tmp_path / "ours", source=source)


def test_the_real_model_gives_all_expected_outputs(shared, tmp_path):
    folder = shared / "weights" / "latin2nqo-fairseq"
    done = run("import", folder, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    lines = (folder / "expected-greedy.tsv").read_text(encoding="utf-8").splitlines()
    sources, expected = zip(*(line.split("\t") for line in lines), strict=True)
    text = "".join(f"{source.lower()}\n" for source in sources)
    done = run("translate", tmp_path / "model", "--beam", 1, "--precision", "float32", input=text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(expected)
    assert len(expected) == 200


def test_names_of_old_versions(tmp_path):
    oracle = written(tmp_path, "post-separate")

    def age(content):
        state = content["model"]
        for name in [name for name in state if "_attn.q_proj" in name]:
            parts = [state.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            state[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        for stack, norms in (
            ("encoder", ["self_attn", "final"]),
            ("decoder", ["self_attn", "encoder_attn", "final"]),
        ):
            for number, norm in enumerate(norms):
                for name in [n for n in state if n.startswith(stack) and f".{norm}_layer_norm." in n]:
                    new = name.replace(f"{norm}_layer_norm", f"layer_norms.{number}")
                    state[new] = state.pop(name)
        state["decoder.embed_out"] = state.pop("decoder.output_projection.weight")

    changed(tmp_path, age)
    assert difference(read_foreign(tmp_path).model, oracle, toolkit) < 1e-4


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("arch", "transformer_lm_gpt"),
        ("arch", "fconv_iwslt_de_en"),
        ("task", "translation_multi_simple_epoch"),
        ("adaptive_softmax_cutoff", "5000,10000"),
        ("cross_self_attention", True),
        ("no_cross_attention", True),
        ("no_decoder_final_norm", True),
        ("encoder_layers_to_keep", "0,2"),
        ("decoder_normalize_before", False),
        ("decoder_ffn_embed_dim", 41),
        ("decoder_output_dim", 12),
        ("activation_fn", "tanh"),
        ("moe_freq", 2),
        ("bpe", "gpt2"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(option, value, tmp_path):
    written(tmp_path)
    changed(tmp_path, lambda content: setattr(content["args"], option, value))
    with pytest.raises(ArtifactError, match=f"{option} = .*not supported"):
        read_foreign(tmp_path)


def test_tensors_that_are_missing_unknown_or_of_a_wrong_shape_are_named(tmp_path):
    written(tmp_path)
    name = "encoder.layers.1.fc1.bias"
    changed(tmp_path, lambda content: content["model"].update({name: torch.zeros(41)}))
    with pytest.raises(ArtifactError, match=r"encoder\.layers\.1\.fc1\.bias has shape \(41,\)"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: content["model"].pop(name))
    with pytest.raises(ArtifactError, match=r"encoder\.layers\.1\.fc1\.bias"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: content["model"].update({name: torch.zeros(40), "x.y": torch.ones(1)}))
    with pytest.raises(ArtifactError, match=r"x\.y"):
        read_foreign(tmp_path)
    changed(tmp_path, lambda content: content["model"].pop("x.y"))
    changed(tmp_path, lambda content: setattr(content["args"], "encoder_layers", 3))
    with pytest.raises(ArtifactError, match="3 layers"):
        read_foreign(tmp_path)


def test_shared_embeddings_that_differ_are_refused(tmp_path):
    written(tmp_path)
    name = "decoder.output_projection.weight"
    changed(tmp_path, lambda content: content["model"].update({name: content["model"][name] + 1}))
    with pytest.raises(ArtifactError, match=r"output_projection\.weight .*differ"):
        read_foreign(tmp_path)


def test_missing_files_are_named(tmp_path):
    written(tmp_path)
    (tmp_path / "bpe.codes").rename(tmp_path / "away")
    with pytest.raises(ArtifactError, match="BPE codes"):
        read_foreign(tmp_path)
    (tmp_path / "away").rename(tmp_path / "bpe.codes")
    (tmp_path / "dict.de.txt").unlink()
    with pytest.raises(ArtifactError, match=r"dict\.de\.txt"):
        read_foreign(tmp_path)


def test_languages_are_told_by_the_sizes_of_dictionaries(tmp_path):
    written(tmp_path)

    def forget(content):
        content["args"].source_lang = content["args"].target_lang = None

    changed(tmp_path, forget)
    vocabulary = read_foreign(tmp_path).model.vocabulary
    assert (vocabulary.source, vocabulary.target) == (24, 16)
    shutil.copy(tmp_path / "dict.en.txt", tmp_path / "dict.fr.txt")
    read_foreign(tmp_path)  # both are equal
    (tmp_path / "dict.fr.txt").write_text("".join(f"word{n} 1\n" for n in range(20)))
    with pytest.raises(ArtifactError, match="en, fr"):
        read_foreign(tmp_path)


def test_each_side_may_have_its_own_codes(tmp_path):
    written(tmp_path)
    (tmp_path / "bpe.codes").rename(tmp_path / "bpe.codes.en")
    write_codes(tmp_path, ["the"], "bpe.codes.de")
    tokenizer = read_foreign(tmp_path).tokenizer
    assert len(tokenizer.encode_source(["hello"])[0]) == 3
    assert len(tokenizer.encode_target(["hello"])[0]) == 6
    write_codes(tmp_path, ["the"], "other.en.codes")
    with pytest.raises(ArtifactError, match=r"bpe\.codes\.en and other\.en\.codes"):
        read_foreign(tmp_path)


class Trap:
    def __reduce__(self):
        return print, ("was here",)


def test_code_in_a_checkpoint_is_refused_by_name(tmp_path, capsys):
    written(tmp_path)
    changed(tmp_path, lambda content: content.update(extra_state={"evil": Trap()}))
    with pytest.raises(ArtifactError, match=r"calls \w+\.print"):
        read_foreign(tmp_path)
    capsys.readouterr()


def test_damaged_dictionaries_and_checkpoints_are_one_line(tmp_path):
    written(tmp_path)
    good = (tmp_path / "dict.en.txt").read_text()
    (tmp_path / "dict.en.txt").write_text(good + "no-count\n")
    with pytest.raises(ArtifactError, match=r"dict\.en\.txt, line 21"):
        read_foreign(tmp_path)
    (tmp_path / "dict.en.txt").write_text(good + "more 1\n")
    with pytest.raises(ArtifactError, match="25 tokens"):
        read_foreign(tmp_path)
    shutil.copy(tmp_path / "dict.en.txt", tmp_path / "checkpoint_best.pt")
    with pytest.raises(ArtifactError, match="checkpoint_best"):
        read_foreign(tmp_path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("bpe", [1]),
        ("encoder_attention_heads", torch.ones(2)),
        ("encoder_attention_heads", 0),
        ("encoder_attention_heads", 1 << 70),
        ("source_lang", ["en"]),
        ("dropout", "much"),
        ("activation_fn", {"a": 1}),
        ("encoder_layers", True),
    ],
)
def test_options_of_a_wrong_type_are_one_line(option, value, tmp_path):
    written(tmp_path)
    changed(tmp_path, lambda content: setattr(content["args"], option, value))
    with pytest.raises((ArtifactError, ConfigError)) as caught:
        read_foreign(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_forged_model_of_an_impossible_size_is_refused_at_once(tmp_path):
    written(tmp_path)

    def forge(content):
        state = content["model"]
        wide = torch.zeros(1, 1).expand(24, 40_000)
        for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection"):
            state[f"{name}.weight"] = wide
        state["encoder.layers.0.fc1.weight"] = torch.zeros(1, 1).expand(1_000_000, 1)
        for stack in ("encoder", "decoder"):
            setattr(content["args"], f"{stack}_embed_dim", 40_000)
            setattr(content["args"], f"{stack}_attention_heads", 1)
        content["args"].decoder_input_dim = content["args"].decoder_output_dim = 40_000

    changed(tmp_path, forge)
    with pytest.raises(ArtifactError, match="weights"):
        read_foreign(tmp_path)
