import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import largest_tensor

from transduce.nn.attention import scaled_dot_product_attention
from transduce.nn.masks import causal_mask
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValueCache
from transduce.nn.window_attention import (
    SMALLEST_BLOCK,
    Window,
    WindowSelfAttention,
    restricted_attention,
    window_attention,
)

windows = st.builds(Window, radius=st.integers(0, 40), global_tokens=st.integers(0, 4), causal=st.booleans())


def whole_mask(window: Window, length: int) -> torch.Tensor:
    """Pair by pair, as the words say it."""
    mask = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(length):
            near = abs(i - j) <= window.radius
            everyone = i < window.global_tokens or j < window.global_tokens
            mask[i, j] = (near or everyone) and (j <= i or not window.causal)
    return mask


def attention(window: Window, **options) -> WindowSelfAttention:
    return WindowSelfAttention(
        8, 2, radius=window.radius, global_tokens=window.global_tokens, causal=window.causal, **options
    ).eval()


@given(length=st.integers(1, 12), radius=st.integers(0, 14), d_v=st.integers(1, 5))
def test_restricted_attention_is_full_attention_seen_through_a_window(length, radius, d_v):
    query, key = torch.randn(2, length, 4), torch.randn(2, length, 4)
    value = torch.randn(2, length, d_v)
    full = scaled_dot_product_attention(query, key, value, whole_mask(Window(radius), length))
    near = restricted_attention(query, key, value, radius)
    torch.testing.assert_close(near.values, full.values)
    for i in range(length):
        for j in range(max(0, i - radius), min(length, i + radius + 1)):
            torch.testing.assert_close(near.weights[:, i, j - i + radius], full.weights[:, i, j])


@given(window=windows, length=st.integers(1, 90), seed=st.integers(0, 9))
@settings(max_examples=40)
def test_blocks_give_what_the_mask_gives(window, length, seed):
    """Values, weights and gradients, with padding at the end and in the middle."""
    torch.manual_seed(seed)
    query, key = (torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    value = torch.randn(2, 3, length, 5, dtype=torch.float64, requires_grad=True)
    seen = torch.rand(2, length) < 0.8
    record: list[torch.Tensor] = []
    found = window_attention(query, key, value, window, seen, record=record)
    mask = whole_mask(window, length) & seen[:, None, None]
    full = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(found, full.values)
    torch.testing.assert_close(record[0], full.weights)
    direction = torch.randn_like(found)
    ours = torch.autograd.grad((found * direction).sum(), (query, key, value))
    theirs = torch.autograd.grad((full.values * direction).sum(), (query, key, value))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_by_finite_differences():
    window = Window(radius=2, global_tokens=1)
    parts = [torch.randn(1, 1, SMALLEST_BLOCK + 2, 1, dtype=torch.float64, requires_grad=True) for _ in "qkv"]
    torch.autograd.gradcheck(lambda q, k, v: window_attention(q, k, v, window), parts)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [7, 50])
def test_a_window_over_all_is_full_attention(causal, length):
    near = attention(Window(radius=length, causal=causal), rotary=RotaryPositions(4))
    full = FullSelfAttention(8, 2, causal=causal, rotary=RotaryPositions(4)).eval()
    full.load_state_dict(near.state_dict())
    x = torch.randn(2, length, 8)
    mask = torch.arange(length) < torch.tensor([[length], [length - 3]])
    torch.testing.assert_close(near(x, mask), full(x, mask), atol=1e-5, rtol=0)
    # in blocks, too
    values = window_attention(*near.project(x), near.window, mask, attend=near.attend)
    torch.testing.assert_close(near.join_heads(values), full(x, mask), atol=1e-5, rtol=0)


@given(window=windows, length=st.integers(1, 70), extra=st.integers(1, 60))
@settings(max_examples=30)
def test_padding_changes_nothing(window, length, extra):
    layer, x = attention(window), torch.randn(1, length + extra, 8)
    mask = (torch.arange(length + extra) < length)[None]
    torch.testing.assert_close(layer(x, mask)[:, :length], layer(x[:, :length]), atol=1e-5, rtol=0)


@given(radius=st.integers(0, 40), global_tokens=st.integers(0, 3), cut=st.integers(1, 79))
@settings(max_examples=30)
def test_a_causal_window_sees_no_later_position(radius, global_tokens, cut):
    layer, x = attention(Window(radius, global_tokens, causal=True)), torch.randn(2, 80, 8)
    changed = torch.cat((x[:, :cut], torch.randn(2, 80 - cut, 8)), dim=1)
    assert torch.equal(layer(x)[:, :cut], layer(changed)[:, :cut])


@given(
    radius=st.integers(0, 12), global_tokens=st.integers(0, 3), pieces=st.lists(st.integers(1, 5), max_size=9)
)
@settings(max_examples=40)
def test_a_cache_continues_what_the_whole_would_be(radius, global_tokens, pieces):
    layer = attention(Window(radius, global_tokens, causal=True), rotary=RotaryPositions(4))
    x, cache = torch.randn(2, sum(pieces, 1), 8), KeyValueCache(4)
    parts = [layer(part, cache=cache) for part in x.split([1, *pieces], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x), atol=1e-5, rtol=0)


def test_dropout_of_weights_only_in_training():
    layer, x = attention(Window(3), dropout=0.5), torch.randn(1, 50, 8)
    assert torch.equal(layer(x), layer(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("causal", [False, True])
def test_memory_grows_with_the_length_not_its_square(causal):
    layer = attention(Window(radius=16, global_tokens=2, causal=causal))
    sizes = [largest_tensor(lambda n=n: layer(torch.randn(1, n, 8)).sum().backward()) for n in (512, 1024)]
    assert sizes[1] <= 2 * sizes[0] < 512 * 512


def test_unsupported_arguments_are_refused():
    layer, x = attention(Window(2)), torch.randn(1, 9, 8)
    with pytest.raises(ValueError, match="key mask"):
        layer(x, causal_mask(9))
    with pytest.raises(ValueError, match="causal"):
        layer(x, cache=KeyValueCache(9))
    with pytest.raises(ValueError, match="-1"):
        Window(-1)
