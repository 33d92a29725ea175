"""A decoding step in C against the same step, layer by layer, in Python."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import needs_kernels
from rounded_models import SUPPORTED, UNSUPPORTED, rounded

from builders import TOKENS, random_tokens, small_model
from transduce.engine import packed_step as ps
from transduce.engine.packed_step import PackedStep
from transduce.engine.precision import to_precision
from transduce.models.transformer import Transformer

pytestmark = needs_kernels


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


def assert_close(found, expected):
    """Both round to 8 bits: where the last bit decides the way, they are a step apart."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        difference = (one - other).abs()
        assert difference.max() < 0.05 * other.abs().max()
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
def test_equal_to_the_step_in_python(changes):
    model = rounded(**changes)
    sources = random_tokens(3, 9)
    sources[1, 6:] = model.vocabulary.pad
    assert_close(steps(model, sources, CHOICES), steps(model.transformer, sources, CHOICES))


def test_a_step_that_is_recorded_has_the_same_past():
    model = rounded()
    sources = random_tokens(2, 5)
    tokens = torch.tensor([4, 7])
    with torch.inference_mode():
        states = [model.start(model.encode(sources)) for _ in range(2)]
        record = []
        found = [model.step(tokens, states[0]), model.step(tokens, states[0], record)]
        expected = [model.step(tokens, states[1]) for _ in range(2)]
    assert len(record) == model.config.decoder_layers
    assert_close(found, expected)


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 4), length=st.integers(1, 7), seed=st.integers(0, 99))
def test_sentences_do_not_depend_on_their_batch(batch, length, seed):
    """Each row has its own scale; a step of rounding may still go another way."""
    model = rounded()
    sources = random_tokens(batch, length, seed=seed)
    together = steps(model, sources, [None] * 3)
    with torch.inference_mode():
        for row in range(batch):
            state = model.start(model.encode(sources[row : row + 1]))
            for number, logits in enumerate(together):
                token = (7 * torch.tensor([row]) + number) % (TOKENS - 3) + 3
                assert_close([model.step(token, state)], [logits[row : row + 1]])


@pytest.mark.parametrize("changes", UNSUPPORTED)
def test_unsupported_models_go_layer_by_layer(changes):
    model = rounded(**changes)
    assert isinstance(model, Transformer)
    assert len(steps(model, random_tokens(2, 5), [None, None])) == 2


def test_a_packed_model_cannot_be_trained():
    with pytest.raises(ValueError, match="int8"):
        rounded().train()


def test_copies_have_their_own_memory():
    model = rounded()
    sources = random_tokens(2, 5)
    expected = steps(model, sources, [None] * 3)
    copied = copy.deepcopy(model)
    assert_close(steps(copied, sources, [None] * 3), expected)
    for parameter in copied.parameters():
        parameter.data.fill_(torch.nan)
    del copied
    assert_close(steps(model, sources, [None] * 3), expected)


def test_layers_of_different_sizes_go_one_by_one():
    model = rounded().transformer
    parts = model.target_embedding, model.target_positions, model.decoder
    assert PackedStep.of(*parts, model.output) is not None
    assert PackedStep.of(*parts, model.target_embedding) is None
    model.decoder.layers[1] = rounded(d_ff=64).transformer.decoder.layers[1]
    assert PackedStep.of(*parts, model.output) is None


@pytest.mark.parametrize("token", [-1, TOKENS])
def test_unknown_tokens_are_refused(token):
    model = rounded()
    with torch.inference_mode():
        state = model.start(model.encode(random_tokens(2, 5)))
        with pytest.raises(IndexError, match=f"{TOKENS}"):
            model.step(torch.tensor([4, token]), state)
        assert state.length == 0


def test_a_state_can_be_copied_between_steps():
    model = rounded()
    tokens = torch.tensor([4, 7])
    with torch.inference_mode():
        state = model.start(model.encode(random_tokens(2, 5)))
        model.step(tokens, state)
        copied, pickled = copy.deepcopy(state), pickle.loads(pickle.dumps(state))
        expected = [model.step(tokens + n, state) for n in range(3)]
        for other in (copied, pickled):
            assert_close([model.step(tokens + n, other) for n in range(3)], expected)


def test_steps_by_turns_see_what_the_others_have_read():
    """What is recorded goes layer by layer, and may set more memory aside."""
    model = rounded()
    tokens = torch.tensor([4, 7])
    with torch.inference_mode():
        states = [model.start(model.encode(random_tokens(2, 5)), capacity=2) for _ in range(2)]
        by_turns = [model.step(tokens, states[0], [] if n % 3 else None) for n in range(9)]
        expected = [model.step(tokens, states[1], []) for n in range(9)]
    assert_close(by_turns, expected)


def test_what_is_too_long_goes_layer_by_layer(monkeypatch):
    model = rounded()
    fast = ps.PackedStep.__call__
    calls = []
    for length, by_kernel in ((6, 0), (3, 4)):  # of the sources; and how many steps can be
        sources = random_tokens(2, length)
        expected = steps(model, sources, [None] * 6)
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(ps, "MAX_KEYS", 4)
            patch.setattr(ps.PackedStep, "__call__", lambda *given: calls.append(1) or fast(*given))
            assert_close(steps(model, sources, [None] * 6), expected)
        assert len(calls) == by_kernel


def test_nan_is_not_hidden():
    model = small_model(d_model=32, d_ff=48, heads=2)
    model.decoder.layers[0].feed_forward.inner.bias.data[5] = torch.nan
    (logits,) = steps(to_precision(model, "int8"), random_tokens(2, 5), [None])
    assert logits.isnan().all()
