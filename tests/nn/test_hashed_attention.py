import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import largest_tensor

from transduce.nn.dropout import use_generator
from transduce.nn.hashed_attention import (
    HashedSelfAttention,
    Hashing,
    place_positions,
    shared_attention,
    visible_keys,
)
from transduce.nn.masks import causal_mask
from transduce.nn.positional import RotaryPositions
from transduce.nn.state import KeyValueCache

sizes = st.fixed_dictionaries(
    {
        "buckets": st.sampled_from([1, 2, 4, 8]),
        "rounds": st.integers(1, 3),
        "chunk": st.integers(1, 20),
        "causal": st.booleans(),
    }
)


def attention(*, buckets=4, rounds=2, chunk=8, **options) -> HashedSelfAttention:
    return HashedSelfAttention(8, 2, buckets=buckets, rounds=rounds, chunk=chunk, **options).eval()


def parts(layer, x):
    query, value = (layer.split_heads(part) for part in layer.query_value(x).split(layer.widths, dim=-1))
    return (query if layer.rotary is None else layer.rotary(query)), value


def by_hand(bucket, chunk, causal):
    """Who sees whom in one round, position by position: (length, length)."""
    length = len(bucket)
    ranks = [sum(b == bucket[i] for b in bucket[:i]) for i in range(length)]
    return torch.tensor(
        [
            [
                bucket[i] == bucket[j]
                and ranks[i] // chunk - ranks[j] // chunk in (0, 1)
                and (j <= i or not causal)
                for j in range(length)
            ]
            for i in range(length)
        ]
    )


@given(
    bucket=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    chunk=st.integers(1, 5),
    causal=st.booleans(),
)
def test_chunks_by_hand(bucket, chunk, causal):
    places = place_positions(torch.tensor(bucket).view(1, 1, 1, -1), chunk)
    assert torch.equal(visible_keys(places, causal)[0, 0], by_hand(bucket, chunk, causal))


def test_shared_attention_by_hand():
    query, value = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    mask = torch.rand(5, 5) < 0.7
    mask[2] = torch.arange(5) == 2  # sees itself alone
    mask[3] = False
    attended = shared_attention(query, value, mask)
    for i in (0, 1, 4):
        others = [j for j in range(5) if mask[i, j] and j != i]
        scores = torch.stack([query[i] @ query[j] / query[j].norm() for j in others])
        expected = scores.softmax(0) @ value[others]
        torch.testing.assert_close(attended.values[i], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(attended.values[2], value[2])
    assert (attended.values[3] == 0).all()


@given(size=sizes, length=st.integers(1, 40), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_chunks_give_what_the_mask_gives(size, length, seed):
    """Values, weights and gradients: a key that several rounds find counts once."""
    torch.manual_seed(seed)
    layer = attention(**size)
    x = torch.randn(2, length, 8, requires_grad=True)
    seen = torch.rand(2, length) < 0.8
    record: list[torch.Tensor] = []
    found = layer(x, seen, record=record)
    query, value = parts(layer, x)
    hidden = layer.hashing(query).masked_fill(~seen[:, None, None], 99)
    mask = visible_keys(place_positions(hidden, size["chunk"]), size["causal"]) & seen[:, None, None]
    full = shared_attention(query, value, mask)
    torch.testing.assert_close(found, layer.join_heads(full.values), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(record[0], full.weights, atol=1e-5, rtol=1e-4)
    direction = torch.randn_like(found)
    weights = (x, *layer.parameters())
    ours = torch.autograd.grad((found * direction).sum(), weights)
    theirs = torch.autograd.grad((layer.join_heads(full.values) * direction).sum(), weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
def test_one_bucket_is_full_attention(causal, rounds):
    layer = attention(buckets=1, rounds=rounds, chunk=30, causal=causal, rotary=RotaryPositions(4))
    x = torch.randn(2, 30, 8)
    full = shared_attention(*parts(layer, x), causal_mask(30) if causal else None)
    torch.testing.assert_close(layer(x), layer.join_heads(full.values), atol=1e-5, rtol=0)


@given(size=sizes, length=st.integers(1, 40), extra=st.integers(1, 30))
@settings(max_examples=30)
def test_padding_changes_nothing(size, length, extra):
    layer, x = attention(**size), torch.randn(1, length + extra, 8)
    mask = (torch.arange(length + extra) < length)[None]
    torch.testing.assert_close(layer(x, mask)[:, :length], layer(x[:, :length]), atol=1e-5, rtol=0)


@given(size=sizes, cut=st.integers(1, 39), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_causal_attention_sees_no_later_position(size, cut, seed):
    torch.manual_seed(seed)
    layer, x = attention(**{**size, "causal": True}), torch.randn(2, 40, 8)
    changed = torch.cat((x[:, :cut], torch.randn(2, 40 - cut, 8)), dim=1)
    assert torch.equal(layer(x)[:, :cut], layer(changed)[:, :cut])


@given(size=sizes, pieces=st.lists(st.integers(1, 5), max_size=9))
@settings(max_examples=40)
def test_a_cache_continues_what_the_whole_would_be(size, pieces):
    layer = attention(**{**size, "causal": True}, rotary=RotaryPositions(4))
    x, cache = torch.randn(2, sum(pieces, 1), 8), KeyValueCache(4)
    steps = [layer(part, cache=cache) for part in x.split([1, *pieces], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x), atol=1e-5, rtol=0)


def test_similar_positions_attend_to_each_other():
    """Vectors that nearly agree fall into one bucket far more often than others do."""
    x = torch.randn(1, 1, 400, 16)
    hashed = Hashing(heads=1, rounds=1, d_k=16, buckets=8).eval()
    near, other = hashed(x + 0.1 * torch.randn_like(x)), hashed(torch.randn_like(x))
    assert (hashed(x) == near).float().mean() > 0.8
    assert (hashed(x) == other).float().mean() < 0.25
    assert hashed(x).unique().numel() == 8


def test_hashing_is_fixed_but_in_training_where_it_follows_the_generator():
    layer, x = attention(rounds=1, chunk=4), torch.randn(1, 40, 8)
    assert torch.equal(layer(x), layer(x))
    generator = torch.Generator().manual_seed(3)
    use_generator(layer.train(), generator)
    state, elsewhere = generator.get_state(), torch.get_rng_state()
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(layer(x), first)
    assert torch.equal(torch.get_rng_state(), elsewhere)


def test_gradients_by_finite_differences():
    # In float32 at the heart: buckets stay as they are for small steps, so that central differences tell.
    layer, x = attention(buckets=2, rounds=2, chunk=3), torch.randn(1, 12, 8)
    direction = torch.randn(1, 12, 8)

    def loss(x):
        return (layer(x) * direction).sum()

    x.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    step = torch.randn_like(x)
    with torch.no_grad():
        slope = (loss(x + 1e-2 * step) - loss(x - 1e-2 * step)) / 2e-2
    torch.testing.assert_close((gradient * step).sum(), slope, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_memory_grows_with_the_length_not_its_square(causal):
    layer = attention(buckets=4, rounds=2, chunk=8, causal=causal)
    sizes = [largest_tensor(lambda n=n: layer(torch.randn(1, n, 8)).sum().backward()) for n in (1024, 2048)]
    assert sizes[1] <= 2 * sizes[0] < 1024 * 1024


def test_dropout_of_weights_only_in_training():
    layer, x = attention(buckets=1, chunk=30, dropout=0.5), torch.randn(1, 30, 8)
    assert torch.equal(layer(x), layer(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


def test_unsupported_arguments_are_refused():
    layer, x = attention(), torch.randn(1, 9, 8)
    with pytest.raises(ValueError, match="key mask"):
        layer(x, causal_mask(9))
    with pytest.raises(ValueError, match="causal"):
        layer(x, cache=KeyValueCache(9))
    with pytest.raises(ValueError, match=r"buckets.*3"):
        attention(buckets=3)
