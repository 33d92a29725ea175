"""Encoding without padding against encoding with it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_tokens, small_model
from transduce.models.precision import in_precision
from transduce.nn.encoder import Encoder
from transduce.nn.masks import padding_mask
from transduce.nn.padding import Unpadded


def padded(model, lengths, seed=0):
    sources = random_tokens(len(lengths), max(lengths), seed=seed)
    for row, length in enumerate(lengths):
        sources[row, length:] = model.vocabulary.pad
    return sources


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5), width=st.integers(1, 4))
def test_there_and_back(lengths, width):
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None]
    x = torch.randn(len(lengths), max(lengths), width)
    with torch.no_grad():
        tokens = Unpadded.of(mask)
    if tokens is None:
        assert len(lengths) == 1 or sum(lengths) >= 0.9 * len(lengths) * max(lengths)
        return
    taken = tokens.take(x)
    assert torch.equal(taken, torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])[None])
    assert torch.equal(tokens.put_back(taken), x * mask[:, 0, 0, :, None])


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre"}, {"positions": "rotary"}, {"d_k": 8, "d_v": 24}, {"attention": "low_rank"}]
)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_encoding_is_the_same(changes, precision, monkeypatch):
    model = in_precision(small_model(**changes).eval(), precision)
    sources = padded(model, [9, 2, 1, 6])
    real = sources != model.vocabulary.pad
    with torch.inference_mode():
        quick = model.encode(sources).states
        assert (quick[~real] == 0).all() == (changes != {"attention": "low_rank"})
        monkeypatch.setattr(Encoder, "_tokens", lambda self, mask: None)
        slow = model.encode(sources).states
    torch.testing.assert_close(quick[real], slow[real], rtol=1e-5, atol=1e-5)


def test_where_gradients_are_wanted_padding_stays():
    mask = padding_mask(torch.tensor([[5, 5, 5], [5, 0, 0]]), 0)
    assert Unpadded.of(mask) is None
    with torch.no_grad():
        assert Unpadded.of(mask) is not None
        assert Unpadded.of(mask[:1]) is None
        assert Unpadded.of(mask.expand(2, 1, 3, 3)) is None
