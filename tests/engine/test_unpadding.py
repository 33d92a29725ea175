import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.engine.packed_encoder import Unpadded


@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=5), width=st.integers(1, 4))
def test_taking_padding_out_and_putting_it_back(lengths, width):
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), max(lengths), width)
    tokens = Unpadded.of(mask)
    taken = tokens.take(x)
    assert torch.equal(taken, torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])[None])
    assert torch.equal(tokens.put_back(taken), x * mask[:, :, None])
