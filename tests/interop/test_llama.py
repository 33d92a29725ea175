import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from builders import shaken, small_gpt
from transduce import artifact
from transduce.config import GPTConfig, Vocabulary
from transduce.decoding.beam import beam_search
from transduce.errors import ArtifactError, TransduceError
from transduce.interop.llama import export_llama, import_llama, load_llama, our_config, their_fields
from transduce.models.build import build

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 31,
    "max_position_embeddings": 24,
    "hidden_size": 16,
    "intermediate_size": 22,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
KINDS = {"Llama": {}, "Mistral": {"sliding_window": None, "head_dim": 4}, "Qwen2": {}}


def theirs(kind="Llama", **changes):
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **KINDS[kind], **changes})
    return shaken(getattr(transformers, f"{kind}ForCausalLM")(config))


def base(value):
    return {"rope_parameters": {"rope_theta": value, "rope_type": "default"}}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"num_key_value_heads": 4, **base(500.0), "rms_norm_eps": 1e-3}),
        ("Llama", {"num_key_value_heads": 1, "tie_word_embeddings": True, "head_dim": 6}),
        ("Llama", {"attention_bias": True}),
        ("Llama", {"mlp_bias": True}),
        ("Mistral", {}),
        ("Qwen2", {"tie_word_embeddings": True}),
    ],
)
def test_equal_logits_and_continuations_from_a_saved_folder(kind, changes, tmp_path):
    twin = theirs(kind, **changes)
    twin.save_pretrained(tmp_path / "theirs")
    model = load_llama(tmp_path / "theirs")
    tokens = torch.randint(3, 31, (4, 20))
    with torch.no_grad():
        ours, wanted = model(tokens), twin(tokens).logits
    assert wanted.std() > 0.5
    torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-4)
    prompts = tokens[:, :6]
    found = beam_search(model, prompts, [8] * 4, beam=1)
    wanted = twin.generate(prompts, max_new_tokens=8, do_sample=False, suppress_tokens=[0, 1])
    for one, row in zip(found, wanted[:, 6:].tolist(), strict=True):
        assert one[0].tokens == row[: row.index(2) if 2 in row else len(row)]
    artifact.save(model, tmp_path / "ours")
    assert torch.equal(artifact.load_as(tmp_path / "ours", "gpt")(tokens), model(tokens))


def test_prompts_of_different_lengths_continue_as_alone(tmp_path):
    theirs().save_pretrained(tmp_path)
    model = load_llama(tmp_path)
    prompts = torch.randint(3, 31, (3, 9))
    prompts[0, 4:], prompts[2, 1:] = 0, 0
    together = beam_search(model, prompts, [7] * 3, beam=3)
    for row, length in enumerate((4, 9, 1)):
        (alone,) = beam_search(model, prompts[row : row + 1, :length], [7], beam=3)
        assert together[row][0].tokens == alone[0].tokens


@pytest.mark.parametrize(
    "changes", [{}, {"share_output": True}, {"bias": True}, {"qkv_bias": True}, {"d_k": 6, "d_v": 6}]
)
def test_ours_into_theirs_and_back(changes):
    shape = {"positions": "rotary", "normalization": "rms", "activation": "swiglu", "bias": False}
    config = GPTConfig(
        **{"layers": 2, "d_model": 12, "d_ff": 20, "heads": 3, "key_value_heads": 1, "max_length": 9},
        **{**shape, "share_output": False, "rotary_base": 100.0, **changes},
    )
    vocabulary = Vocabulary(source=25, target=25)
    model, other = (shaken(build(config, vocabulary, seed=seed)) for seed in (0, 1))
    fields = their_fields(config, vocabulary)
    twin = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**fields)).eval()
    twin.load_state_dict(export_llama(model), strict=True)
    tokens = torch.randint(3, 25, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), twin(tokens).logits, atol=1e-4, rtol=1e-4)
    import_llama(other, twin.state_dict())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    again = our_config(json.loads(json.dumps(fields)))
    assert again.model_dump(exclude={"d_k", "d_v", "qkv_bias", "dropout"}) == config.model_dump(
        exclude={"d_k", "d_v", "qkv_bias", "dropout"}
    )


def test_a_sliding_window_limits_the_length(tmp_path):
    theirs("Mistral", sliding_window=5).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="sliding window of 5"):
        assert load_llama(tmp_path).max_length == 5


def test_every_key_is_consumed(tmp_path):
    theirs().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)

    def refuse(named, **changes):
        save_file({name: each for name, each in {**state, **changes}.items() if each is not None}, path)
        with pytest.raises(ArtifactError) as error:
            load_llama(tmp_path)
        assert named in str(error.value)

    key = "model.layers.1.self_attn.k_proj.weight"
    refuse("model.extra", **{"model.extra": torch.zeros(1)})
    refuse(f"{key} is missing", **{key: None})
    refuse(f"{key} has shape (7, 16)", **{key: torch.zeros(7, 16)})
    refuse(key, **{key: torch.zeros(8, 15)})
    refuse("lm_head.weight", **{"lm_head.weight": None})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "'linear'"),
        ({"rope_scaling": 3, "rope_parameters": None}, "rope_parameters"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"num_key_value_heads": 3}, "key_value_heads"),
        ({"num_attention_heads": 0}, "heads"),
        ({"model_type": "qwen3"}, "qwen3"),
        ({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}, "pad_token_id"),
    ],
)
def test_unsupported_models_are_refused(changes, named, tmp_path):
    theirs().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(TransduceError) as error:
        load_llama(tmp_path)
    assert named in str(error.value)


def test_models_of_another_shape_are_refused():
    for changes in ({}, {"positions": "rotary", "normalization": "rms"}):
        model = small_gpt(**changes)
        for asked in (
            lambda model=model: export_llama(model),
            lambda model=model: their_fields(model.config, model.vocabulary),
        ):
            with pytest.raises(TransduceError, match="llama has"):
                asked()


def test_weights_in_several_files(tmp_path):
    twin = theirs()
    twin.save_pretrained(tmp_path, max_shard_size="4KB")
    assert not (tmp_path / "model.safetensors").exists()
    tokens = torch.randint(3, 31, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(load_llama(tmp_path)(tokens), twin(tokens).logits, atol=1e-4, rtol=1e-4)
    index = tmp_path / "model.safetensors.index.json"
    whole = json.loads(index.read_text())
    first, *others = whole["weight_map"].items()

    def refuse(named, table):
        index.write_text(json.dumps(table))
        with pytest.raises(ArtifactError) as error:
            load_llama(tmp_path)
        assert named in str(error.value)

    left = {name: file for name, file in whole["weight_map"].items() if name != "lm_head.weight"}
    refuse("lm_head.weight", {"weight_map": left})
    refuse("none.safetensors", {"weight_map": {**dict(others), first[0]: "none.safetensors"}})
    refuse(index.name, {"weight_map": {first[0]: "../model.safetensors"}})
    refuse(index.name, {"weight_map": [1]})
    refuse(index.name, 3)
