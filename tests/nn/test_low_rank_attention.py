import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import largest_tensor

from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.masks import causal_mask
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValueCache


def attention(rank: int = 4, max_length: int = 64, **options) -> LowRankSelfAttention:
    return LowRankSelfAttention(8, 2, rank=rank, max_length=max_length, **options).eval()


@pytest.mark.parametrize("rotary", [None, RotaryPositions(4)])
def test_the_identity_is_full_attention(rotary):
    layer, full = attention(12, 12, rotary=rotary), FullSelfAttention(8, 2, rotary=rotary).eval()
    state = {name: value for name, value in layer.state_dict().items() if "_projection" not in name}
    full.load_state_dict(state)
    with torch.no_grad():
        for projection in (layer.key_projection, layer.value_projection):
            projection.copy_(torch.eye(12))
    x = torch.randn(3, 12, 8)
    ours, theirs = [], []
    torch.testing.assert_close(layer(x), full(x), atol=1e-5, rtol=0)
    torch.testing.assert_close(layer(x, record=ours), full(x, record=theirs), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours[0], theirs[0])


def test_the_equation_by_hand():
    layer, x = attention(rank=3).double(), torch.randn(1, 5, 8, dtype=torch.float64)
    query, key, value = layer.query_key_value(x)[0].split(layer.widths, dim=-1)
    heads = []
    for head in (slice(0, 4), slice(4, 8)):
        keys = layer.key_projection[:, :5] @ key[:, head]
        values = layer.value_projection[:, :5] @ value[:, head]
        heads.append((query[:, head] @ keys.T / 2).softmax(-1) @ values)
    torch.testing.assert_close(layer(x)[0], layer.output(torch.cat(heads, dim=-1)))


@given(length=st.integers(1, 20), extra=st.integers(1, 9))
@settings(max_examples=20)
def test_padding_changes_nothing(length, extra):
    layer, x = attention(), torch.randn(1, length + extra, 8)
    mask = (torch.arange(length + extra) < length)[None]
    padded, alone = [], []
    found = layer(x, mask, record=padded)[:, :length]
    torch.testing.assert_close(found, layer(x[:, :length], record=alone), atol=1e-5, rtol=0)
    torch.testing.assert_close(padded[0][:, :, :length, :length], alone[0])
    assert (padded[0][..., length:] == 0).all()


def test_position_shares_are_the_influence_of_each_value():
    layer, x = attention(rank=3), torch.randn(1, 6, 8)
    record: list[torch.Tensor] = []
    layer(x, record=record)
    torch.testing.assert_close(record[0].sum(-1), torch.ones(1, 2, 6))
    query, key, value = layer.project(x)

    def mixed(value):
        keys, values = layer.key_projection[:, :6] @ key, layer.value_projection[:, :6] @ value
        return layer.attend(query, keys, values, None, None)[..., 0]

    ones = torch.eye(6)[:, None, None, :, None]  # at each position in turn
    moved = torch.stack([(mixed(value + one) - mixed(value)).abs() for one in ones], dim=-1)
    torch.testing.assert_close(moved / moved.sum(-1, keepdim=True), record[0], rtol=1e-3, atol=1e-4)


def test_a_text_of_padding_alone_gets_zeros():
    layer, x = attention(), torch.randn(1, 4, 8)
    layer.output.bias.data.zero_()
    assert (layer(x, torch.zeros(1, 4, dtype=torch.bool)) == 0).all()


def test_gradients_by_finite_differences():
    layer = LowRankSelfAttention(4, 2, rank=2, max_length=5).double()
    x = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, True, False, True])[None]
    parameters = list(layer.parameters())
    torch.autograd.gradcheck(lambda x, *_: layer(x, mask), (x, *parameters))


def test_memory_grows_with_the_length_not_its_square():
    layer = attention(rank=16, max_length=1024)
    sizes = [largest_tensor(lambda n=n: layer(torch.randn(1, n, 8)).sum().backward()) for n in (512, 1024)]
    assert sizes[1] <= 2 * sizes[0] < 512 * 512


def test_unsupported_arguments_are_refused():
    layer, x = attention(max_length=9), torch.randn(1, 9, 8)
    with pytest.raises(ValueError, match="key mask"):
        layer(x, causal_mask(9))
    with pytest.raises(ValueError, match="cache"):
        layer(x, cache=KeyValueCache(9))
    with pytest.raises(ValueError, match=r"10 positions.*9"):
        layer(torch.randn(1, 10, 8))
