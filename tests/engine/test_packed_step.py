"""A decoding step in C against the same step, layer by layer, in Python."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import needs_engine
from rounded_models import SUPPORTED, UNSUPPORTED, packed

from builders import TOKENS, random_tokens, small_model
from transduce.engine.packed_transformer import PackedTransformer
from transduce.engine.precision import to_precision
from transduce.models.transformer import Transformer

pytestmark = needs_engine


def steps(model, sources, choices):
    """Logits of each step: some tokens, and after each of them another choice of the targets."""
    found = []
    with torch.inference_mode():
        state = model.start(model.encode(sources), capacity=2)  # it has to grow
        for number, rows in enumerate(choices):
            tokens = (7 * torch.arange(state.targets) + number) % (TOKENS - 3) + 3
            found.append(model.step(tokens, state))
            if rows is not None:
                state.select(rows)
    return found


def assert_close(found, expected, precision="int8"):
    """In 8 bits, where the last bit decides which way a number is rounded, both are a step apart."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        difference = (one - other).abs()
        assert difference.max() < (0.05 if precision == "int8" else 1e-5) * other.abs().max()
        assert difference.median() < 1e-4


CHOICES = [
    None,
    torch.tensor([[0, 0], [1, 1], [2, 2]]),
    None,
    torch.tensor([[4, 5], [1, 1]]),
    torch.arange(4),  # as many targets as before, each with a source of its own
    None,
    None,
]


@pytest.mark.parametrize("changes", SUPPORTED)
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_equal_to_the_step_in_python(changes, precision):
    model = packed(precision, **changes)
    sources = random_tokens(3, 9)
    sources[1, 6:] = model.vocabulary.pad
    assert_close(steps(model, sources, CHOICES), steps(model.transformer, sources, CHOICES), precision)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_the_attention_of_a_step_is_recorded(precision):
    model, sources, tokens = packed(precision), random_tokens(2, 5), torch.tensor([4, 7])
    sources[1, 3:] = model.vocabulary.pad
    records, logits = [], []
    with torch.inference_mode():
        for each in (model, model.transformer):
            state, record = each.start(each.encode(sources)), []
            each.step(tokens, state)
            logits.append(each.step(tokens, state, record))
            records.append(record)
    assert len(records[0]) == model.config.decoder_layers
    assert_close(*records, precision)
    assert_close(logits[:1], logits[1:], precision)


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 4), length=st.integers(1, 7), seed=st.integers(0, 99))
def test_sentences_do_not_depend_on_their_batch(batch, length, seed):
    model = packed()
    sources = random_tokens(batch, length, seed=seed)
    together = steps(model, sources, [None] * 3)
    with torch.inference_mode():
        for row in range(batch):
            state = model.start(model.encode(sources[row : row + 1]))
            for number, logits in enumerate(together):
                token = (7 * torch.tensor([row]) + number) % (TOKENS - 3) + 3
                assert torch.equal(model.step(token, state), logits[row : row + 1])


@pytest.mark.parametrize("changes", UNSUPPORTED)
def test_unsupported_models_go_layer_by_layer(changes):
    model = packed(**changes)
    assert isinstance(model, Transformer)
    assert len(steps(model, random_tokens(2, 5), [None, None])) == 2


def test_a_packed_model_cannot_be_trained():
    with pytest.raises(ValueError, match="cannot be trained"):
        packed().train()


def test_copies_have_their_own_memory():
    model = packed()
    sources = random_tokens(2, 5)
    expected = steps(model, sources, [None] * 3)
    copied = copy.deepcopy(model)
    assert_close(steps(copied, sources, [None] * 3), expected)
    for parameter in copied.parameters():
        parameter.data.fill_(torch.nan)
    del copied
    assert_close(steps(model, sources, [None] * 3), expected)


def test_layers_of_different_sizes_go_one_by_one():
    model = small_model(d_model=32, d_ff=48, heads=2)
    assert PackedTransformer.of(model) is not None
    model.decoder.layers[1] = small_model(d_model=32, d_ff=64, heads=2).decoder.layers[1]
    assert PackedTransformer.of(model) is None


@pytest.mark.parametrize("token", [-1, TOKENS])
def test_unknown_tokens_are_refused(token):
    model = packed()
    with torch.inference_mode():
        state = model.start(model.encode(random_tokens(2, 5)))
        with pytest.raises(IndexError, match=f"{TOKENS}"):
            model.step(torch.tensor([4, token]), state)
        assert state.length == 0


def test_a_state_can_be_copied_between_steps():
    model = packed()
    tokens = torch.tensor([4, 7])
    with torch.inference_mode():
        state = model.start(model.encode(random_tokens(2, 5)))
        model.step(tokens, state)
        copied, pickled = copy.deepcopy(state), pickle.loads(pickle.dumps(state))
        expected = [model.step(tokens + n, state) for n in range(3)]
        for other in (copied, pickled):
            assert_close([model.step(tokens + n, other) for n in range(3)], expected)


def test_nan_is_not_hidden():
    model = small_model(d_model=32, d_ff=48, heads=2)
    model.decoder.layers[0].feed_forward.inner.bias.data[5] = torch.nan
    (logits,) = steps(to_precision(model, "int8"), random_tokens(2, 5), [None])
    assert logits.isnan().all()
