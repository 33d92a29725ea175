import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

from builders import shaken, small_bert
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.bert import export_bert, import_bert, load_bert, their_fields
from transduce.models.build import build

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.* are taken to be")  # most models here have no tokenizer

SIZES = {
    "vocab_size": 29,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 11,
}


def theirs(kind, **changes):
    config = transformers.BertConfig(**{**SIZES, "initializer_range": 0.3, **changes})
    return shaken(getattr(transformers, kind)(config))


def texts():
    """Padded ones, in two segments: tokens, segments, and where there is a token."""
    tokens, segments = torch.randint(3, 29, (4, 11)), torch.randint(0, 2, (4, 11))
    tokens[1, 6:] = 0
    tokens[3, 1:] = 0
    return tokens, segments, tokens != 0


def test_bert_model(tmp_path):
    twin = theirs("BertModel")
    twin.save_pretrained(tmp_path)
    model = load_bert(tmp_path)
    assert (model.config.masked_head, model.config.pooler, model.config.classes) == (False, True, [])
    tokens, segments, real = texts()
    with torch.no_grad():
        wanted = twin(tokens, attention_mask=real.long(), token_type_ids=segments)
        states = model.encode(tokens, segments)
        torch.testing.assert_close(states[real], wanted.last_hidden_state[real], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model.pool(states), wanted.pooler_output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"layer_norm_eps": 1e-3, "type_vocab_size": 3}])
def test_masked_language_model(changes, tmp_path):
    twin = theirs("BertForMaskedLM", **changes)
    twin.save_pretrained(tmp_path)
    model = load_bert(tmp_path)
    tokens, segments, real = texts()
    with torch.no_grad():
        wanted = twin(tokens, attention_mask=real.long(), token_type_ids=segments).logits
        ours = model(tokens, segments)
    assert wanted.std() > 0.5
    torch.testing.assert_close(ours[real], wanted[real], atol=1e-5, rtol=1e-5)


def test_classification(tmp_path):
    twin = theirs("BertForSequenceClassification", id2label={0: "good", 1: "bad", 2: "neither"})
    twin.save_pretrained(tmp_path)
    model = load_bert(tmp_path)
    assert model.config.classes == ["good", "bad", "neither"]
    tokens, segments, real = texts()
    with torch.no_grad():
        wanted = twin(tokens, attention_mask=real.long(), token_type_ids=segments).logits
        ours = model.classify(model.encode(tokens, segments))
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["BertModel", "BertForPreTraining"])
def test_names_as_they_were_first_published(kind, tmp_path):
    twin = theirs(kind)
    twin.save_pretrained(tmp_path)
    new = load_bert(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for today, then in names.items():
        state = {name.replace(today, then): tensor for name, tensor in state.items()}
    assert sum("gamma" in name for name in state) >= 7
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    old = load_bert(tmp_path)
    for name, parameter in new.named_parameters():
        assert torch.equal(parameter, old.get_parameter(name)), name


@pytest.mark.parametrize(
    "kind", ["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"]
)
def test_there_and_back(kind, tmp_path):
    twin = theirs(kind)
    twin.save_pretrained(tmp_path)
    model = load_bert(tmp_path)
    state = export_bert(model)
    again = theirs(kind, **their_fields(model.config, model.vocabulary))
    again.load_state_dict(state, strict=True)
    for name, tensor in twin.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    other = build(model.config, model.vocabulary, seed=1)
    import_bert(other, again.state_dict())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


def test_another_activation(tmp_path):
    twin = theirs("BertModel", hidden_act="relu")
    twin.save_pretrained(tmp_path)
    tokens, segments, _ = texts()
    with torch.no_grad():
        ours = load_bert(tmp_path).encode(tokens[:1], segments[:1])
        wanted = twin(tokens[:1], token_type_ids=segments[:1]).last_hidden_state
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)
    theirs("BertForMaskedLM", hidden_act="relu").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="hidden_act = 'relu'"):
        load_bert(tmp_path)


def test_pre_norm_is_refused():
    model = small_bert(norm="pre")
    for asked in (
        lambda: export_bert(model),
        lambda: import_bert(model, theirs("BertForMaskedLM").state_dict()),
        lambda: their_fields(model.config, model.vocabulary),
    ):
        with pytest.raises(ConfigError, match="post-norm"):
            asked()


WORDS = ["a", "[SEP]", "b", "[PAD]", "c", "[CLS]", "[UNK]", "[MASK]", *map(str, range(21))]


def test_special_tokens_are_those_of_the_tokenizer(tmp_path):
    theirs("BertModel", pad_token_id=3).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"tokenizer\.json or vocab\.txt"):
        load_bert(tmp_path)
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load_bert(tmp_path).vocabulary
    assert (found.pad, found.bos, found.eos) == (3, 5, 1)
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": {"content": "a"}, "sep_token": "b"}')
    found = load_bert(tmp_path).vocabulary
    assert (found.pad, found.bos, found.eos) == (3, 0, 2)
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": "<s>"}')
    with pytest.raises(ArtifactError, match="<s>"):
        load_bert(tmp_path)


def test_every_key_is_consumed(tmp_path):
    theirs("BertForMaskedLM").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    save_file({**state, "bert.extra": torch.zeros(1)}, path)
    with pytest.raises(ArtifactError, match=r"1 tensors.*bert\.extra"):
        load_bert(tmp_path)
    save_file({**state, "cls.predictions.decoder.weight": torch.zeros(29, 16)}, path)
    with pytest.raises(ArtifactError, match=r"cls\.predictions\.decoder\.weight"):
        load_bert(tmp_path)
