import pytest
import torch
from safetensors.torch import load_file, save_file

from builders import shaken
from transduce.config import GPTConfig, Vocabulary
from transduce.errors import ArtifactError, TransduceError
from transduce.interop.gpt2 import export_gpt2, import_gpt2, load_gpt2, their_fields
from transduce.models.build import build

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 31, "n_positions": 12, "n_embd": 16, "n_layer": 3, "n_head": 4}


def theirs(**changes):
    config = transformers.GPT2Config(**{**SIZES, "initializer_range": 0.3, **changes})
    return shaken(transformers.GPT2LMHeadModel(config))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation_function": "relu", "n_inner": 10, "layer_norm_epsilon": 1e-3},
        {"activation_function": "gelu"},
        {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    ],
)
def test_equal_logits_from_a_saved_folder(changes, tmp_path):
    twin = theirs(**changes)
    twin.save_pretrained(tmp_path)
    model = load_gpt2(tmp_path)
    tokens = torch.randint(3, 30, (4, 12))
    with torch.no_grad():
        ours, wanted = model(tokens), twin(tokens).logits
    assert wanted.std() > 0.5
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)


def test_ours_into_theirs_and_back():
    config = GPTConfig(layers=2, d_model=12, d_ff=20, heads=3, max_length=9)
    vocabulary = Vocabulary(source=25, target=25)
    model, other = (shaken(build(config, vocabulary, seed=seed)) for seed in (0, 1))
    twin = transformers.GPT2LMHeadModel(transformers.GPT2Config(**their_fields(config, vocabulary))).eval()
    twin.load_state_dict(export_gpt2(model), strict=True)
    tokens = torch.randint(3, 25, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), twin(tokens).logits, atol=1e-5, rtol=1e-5)
    import_gpt2(other, twin.state_dict())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


def test_greedy_continuations_are_theirs():
    """The same prompts through our search and their ``generate``."""
    from transduce.decoding.beam import beam_search

    twin = theirs(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    model = build(
        GPTConfig(layers=3, d_model=16, d_ff=64, heads=4, max_length=12), Vocabulary(source=31, target=31)
    ).eval()
    import_gpt2(model, twin.state_dict())
    prompts = torch.randint(3, 31, (5, 4))
    found = beam_search(model, prompts, [8] * 5, beam=1)
    wanted = twin.generate(prompts, max_new_tokens=8, do_sample=False, suppress_tokens=[0, 1])
    for one, row in zip(found, wanted[:, 4:].tolist(), strict=True):
        assert one[0].tokens == row[: row.index(2) if 2 in row else len(row)]


def test_every_key_is_consumed(tmp_path):
    theirs().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    save_file({**state, "transformer.extra": torch.zeros(1)}, path)
    with pytest.raises(ArtifactError, match=r"1 tensors.*transformer\.extra"):
        load_gpt2(tmp_path)
    save_file({**state, "transformer.h.0.attn.bias": torch.zeros(1)}, path)  # an old file's causal mask
    load_gpt2(tmp_path)
    save_file({**state, "lm_head.weight": torch.zeros(31, 16)}, path)
    with pytest.raises(ArtifactError, match=r"lm_head\.weight"):
        load_gpt2(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"activation_function": "mish"}, "activation_function = 'mish'"),
        ({"bos_token_id": 5, "eos_token_id": 6}, "bos_token_id 5 and eos_token_id 6"),
        ({"bos_token_id": 5, "eos_token_id": 6, "pad_token_id": 6}, "pad_token_id"),
    ],
)
def test_unsupported_models_are_refused(changes, named, tmp_path):
    theirs(**changes).save_pretrained(tmp_path)
    with pytest.raises(TransduceError) as error:
        load_gpt2(tmp_path)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("special", "ours"), [((5, 6, 7), (5, 6, 7)), ((6, 6, None), (6, 6, 6)), ((5, 5, 2), (5, 5, 2))]
)
def test_special_tokens_are_theirs(special, ours, tmp_path):
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    theirs(**dict(zip(names, special, strict=True))).save_pretrained(tmp_path)
    found = load_gpt2(tmp_path).vocabulary
    assert (found.bos, found.eos, found.pad) == ours


def test_post_norm_is_refused():
    config, vocabulary = (
        GPTConfig(layers=1, d_model=8, d_ff=8, heads=2, norm="post"),
        Vocabulary(source=9, target=9),
    )
    model = build(config, vocabulary)
    for asked in (
        lambda: export_gpt2(model),
        lambda: import_gpt2(model, theirs().state_dict()),
        lambda: their_fields(config, vocabulary),
    ):
        with pytest.raises(TransduceError, match="pre-norm"):
            asked()


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(TransduceError, match=r"config\.json"):
        load_gpt2(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(TransduceError, match=r"config\.json.*gpt2"):
        load_gpt2(tmp_path)


@pytest.mark.parametrize("changes", [{"positions": "rotary"}, {"bias": False}, {"share_output": False}])
def test_other_shapes_are_refused(changes):
    config = GPTConfig(layers=1, d_model=8, d_ff=8, heads=2, **changes)
    with pytest.raises(TransduceError, match=next(iter(changes))):
        export_gpt2(build(config, Vocabulary(source=9, target=9)))
