"""Encoding without padding against encoding with it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import padded, small_model
from transduce.engine import kernels
from transduce.engine.precision import in_precision
from transduce.engine.unpadding import Unpadded
from transduce.nn.encoder import Encoder
from transduce.nn.masks import padding_mask


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=5), width=st.integers(1, 4))
def test_there_and_back(lengths, width):
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None]
    x = torch.randn(len(lengths), max(lengths), width)
    tokens = Unpadded.of(mask)
    taken = tokens.take(x)
    assert torch.equal(taken, torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])[None])
    assert torch.equal(tokens.put_back(taken), x * mask[:, 0, 0, :, None])
    assert tokens.share == pytest.approx(sum(lengths) / max(1, mask.numel()))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre"},
        {"positions": "rotary"},
        {"heads": 2, "d_k": 16, "d_v": 48},
        {"attention": "low_rank"},
    ],
)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_encoding_is_the_same(changes, precision, monkeypatch):
    model = in_precision(small_model(**changes), precision)
    sources = padded([9, 2, 1, 6])
    real = sources != model.vocabulary.pad
    with torch.inference_mode():
        without = model.encode(sources).states
        assert (without[~real] == 0).all() == (changes != {"attention": "low_rank"})
        model.fast_encoder = None
        monkeypatch.setattr(Encoder, "_tokens", lambda self, mask: None)
        expected = model.encode(sources).states
    # A step of rounding may go another way; torch's have a scale for all rows, padding included.
    tolerance = 1e-5 if precision == "float32" else 0.02 if kernels.library() else 0.1
    torch.testing.assert_close(without[real], expected[real], rtol=tolerance, atol=tolerance)


def test_padding_stays_where_it_is_little_or_in_the_way():
    model = small_model()
    few, many = (padding_mask(padded(lengths), model.vocabulary.pad) for lengths in ([9, 9], [9, 1]))
    tokens = model.encoder._tokens
    assert tokens(many) is None  # with gradients
    with torch.no_grad():
        assert tokens(many) is not None
        for mask in (None, few, many[:1], many.expand(2, 1, 9, 9), many.expand(2, 2, 1, 9)):
            assert tokens(mask) is None
