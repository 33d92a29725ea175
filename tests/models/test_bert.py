import pytest
import torch

from builders import TOKENS, random_tokens, small_bert
from transduce import artifact
from transduce.config import BERTConfig, Vocabulary
from transduce.errors import ConfigError, TransduceError
from transduce.models.build import build


@torch.no_grad()
def test_padding_changes_nothing():
    model, tokens = small_bert(pooler=True, classes=["a", "b"]), random_tokens(3, 9)
    tokens[1, 4:] = 0
    tokens[2, 1:] = 0
    together, classes = model(tokens), model.classify(model.encode(tokens))
    for row, length in enumerate((9, 4, 1)):
        alone = tokens[row : row + 1, :length]
        torch.testing.assert_close(together[row, :length], model(alone)[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(classes[row], model.classify(model.encode(alone))[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_bert_attends_in_both_directions_and_reads_segments():
    model, tokens = small_bert(), random_tokens(1, 6)
    before = model(tokens)
    changed = tokens.clone()
    changed[0, 5] = 3 + (tokens[0, 5] - 2) % 17
    assert (before[0, 0] - model(changed)[0, 0]).abs().max() > 1e-3
    assert (before - model(tokens, torch.ones_like(tokens))).abs().max() > 1e-3


@torch.no_grad()
def test_pre_norm_ends_in_a_norm():
    model, tokens = small_bert(norm="pre"), random_tokens(2, 6)
    x = model.norm(model.positions(model.output(tokens)) + model.segments(torch.zeros_like(tokens)))
    for layer in model.encoder.layers:
        x = x + layer.self_attention(layer.around_self_attention.norm(x))
        x = x + layer.feed_forward(layer.around_feed_forward.norm(x))
    torch.testing.assert_close(model.encode(tokens), model.encoder.final_norm(x), atol=1e-5, rtol=1e-5)
    assert model.encoder.final_norm.eps == 1e-12


@pytest.mark.parametrize(
    "heads", [{}, {"pooler": True}, {"masked_head": False, "pooler": True, "classes": ["good", "bad"]}]
)
@torch.no_grad()
def test_saved_is_loaded(heads, tmp_path):
    model, tokens = small_bert(**heads), random_tokens(2, 5)
    artifact.save(model, tmp_path)
    again = artifact.load_as(tmp_path, "bert")
    assert again.config == model.config
    assert torch.equal(again.encode(tokens), model.encode(tokens))
    if heads.get("classes"):
        assert torch.equal(again.classify(again.encode(tokens)), model.classify(model.encode(tokens)))


def test_a_missing_head_is_named():
    model, tokens = small_bert(masked_head=False), random_tokens(1, 3)
    states = model.encode(tokens)
    for asked in (lambda: model(tokens), lambda: model.pool(states), lambda: model.classify(states)):
        with pytest.raises(ConfigError, match=r"the model (has no|is not)"):
            asked()


def test_classes_need_the_pooler_and_names():
    with pytest.raises(ConfigError, match="pooler"):
        BERTConfig(classes=["a"])
    with pytest.raises(ConfigError, match="same name"):
        BERTConfig(pooler=True, classes=["a", "a"])


def test_a_vocabulary_without_padding_is_refused():
    one = Vocabulary(source=TOKENS, target=TOKENS, pad=2, bos=2, eos=2)
    with pytest.raises(TransduceError, match="padding"):
        build(BERTConfig(), one)
