"""An encoder in C against the same encoder, layer by layer, in Python."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import needs_engine
from rounded_models import SUPPORTED, UNSUPPORTED, packed

from builders import padded, random_tokens, shared_by
from transduce.engine.packed_decoder import pad, unpad
from transduce.engine.packed_transformer import PackedMemory
from transduce.models.transformer import Transformer

pytestmark = needs_engine


def read(model, sources):
    with torch.inference_mode():
        memory = model.encode(sources)
        return (memory.padded() if isinstance(memory, PackedMemory) else memory).states


def assert_close(found, expected, precision="int8"):
    """In 8 bits, where the last bit decides which way a number is rounded, both are a step apart."""
    difference = (found - expected).abs()
    assert difference.max() < (0.05 if precision == "int8" else 1e-5) * expected.abs().max()
    assert difference.median() < 1e-4


@pytest.mark.parametrize("changes", SUPPORTED)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_equal_to_the_encoder_in_python(changes, threads, precision):
    model, sources = packed(precision, **changes), padded([9, 1, 5])
    with shared_by(threads):
        found = read(model, sources)
    real = sources != model.vocabulary.pad
    assert_close(found[real], read(model.transformer, sources)[real], precision)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33, 64, 65, 300])
@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}])
def test_sources_of_any_length(length, changes):
    model, sources = packed("float32", **changes), random_tokens(1, length)
    assert_close(read(model, sources), read(model.transformer, sources), "float32")


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_sources_do_not_depend_on_their_batch(lengths, seed):
    model, sources = packed(), padded(lengths, seed)
    together = read(model, sources)
    for row, length in enumerate(lengths):
        assert torch.equal(together[row, :length], read(model, sources[row : row + 1, :length])[0])
        assert (together[row, length:] == 0).all()


def test_padding_may_be_anywhere():
    model, sources = packed(), random_tokens(3, 6)
    sources[0, 2] = sources[1, 0] = sources[2, :] = model.vocabulary.pad
    real = sources != model.vocabulary.pad
    assert_close(read(model, sources)[real], read(model.transformer, sources)[real])


@pytest.mark.parametrize("changes", UNSUPPORTED)
def test_unsupported_models_go_layer_by_layer(changes):
    model = packed(**changes)
    assert isinstance(model, Transformer)
    assert read(model, random_tokens(2, 5)).isfinite().all()


def test_attention_weights_of_every_layer():
    model, sources = packed(), random_tokens(2, 6)
    assert len(model.attention(sources, sources).encoder) == model.config.encoder_layers


def test_copies_have_their_own_memory():
    model, sources = packed(), random_tokens(2, 5)
    expected = read(model, sources)
    copied = copy.deepcopy(model)
    assert torch.equal(read(copied, sources), expected)
    for parameter in copied.parameters():
        parameter.data.fill_(torch.nan)
    del copied
    assert torch.equal(read(model, sources), expected)


@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=5), width=st.integers(1, 4))
def test_taking_padding_out_and_putting_it_back(lengths, width):
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), max(lengths), width)
    taken = unpad(x, mask)
    assert torch.equal(taken, torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)]))
    assert torch.equal(pad(taken, mask), x * mask[:, :, None])
