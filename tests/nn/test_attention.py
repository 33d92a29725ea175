import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.nn.attention import (
    dot_product_attention,
    fast_attention,
    scaled_dot_product_attention,
)
from transduce.nn.masks import causal_mask
from transduce.nn.multi_head_attention import EncoderDecoderAttention, FullSelfAttention
from transduce.nn.recurrent_attention import AdditiveAttention

# What rounding does to sums of a few dozen terms in each type.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}

cases = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 3),
        "heads": st.integers(1, 4),
        "query": st.integers(1, 9),
        "key": st.integers(1, 9),
        "d_k": st.integers(1, 17),
        "d_v": st.integers(1, 17),
        "mask": st.sampled_from(["none", "random", "per batch", "keys", "causal"]),
        "dtype": st.sampled_from(list(TOLERANCE)),
        "scale": st.sampled_from([None, 1.0, 0.3]),
        "seed": st.integers(0, 2**31),
    }
)


def draw(case):
    generator = torch.Generator().manual_seed(case["seed"])
    lead = (case["batch"], case["heads"])

    def tensor(*shape):
        return torch.randn(*lead, *shape, generator=generator).to(case["dtype"]).requires_grad_()

    query = tensor(case["query"], case["d_k"])
    key, value = tensor(case["key"], case["d_k"]), tensor(case["key"], case["d_v"])
    size = {
        "none": None,
        "random": (*lead, case["query"], case["key"]),
        "per batch": (case["batch"], 1, 1, case["key"]),
        "keys": (case["key"],),
        "causal": (case["query"], case["key"]),
    }[case["mask"]]
    if size is None:
        return query, key, value, None
    if case["mask"] == "causal":
        return query, key, value, torch.ones(size, dtype=torch.bool).tril()
    return query, key, value, torch.rand(size, generator=generator) < 0.5  # whole rows may be empty


@given(cases)
def test_fast_path_equals_the_equation(case):
    query, key, value, mask = draw(case)
    tolerance = TOLERANCE[case["dtype"]]
    slow = scaled_dot_product_attention(query, key, value, mask, scale=case["scale"]).values
    fast = fast_attention(query, key, value, mask, scale=case["scale"])
    torch.testing.assert_close(fast, slow, atol=tolerance, rtol=tolerance)
    direction = torch.randn_like(slow)
    for one, other in zip(
        torch.autograd.grad(fast, (query, key, value), direction),
        torch.autograd.grad(slow, (query, key, value), direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=10 * tolerance, rtol=10 * tolerance)


@given(cases)
def test_weights_are_zero_for_hidden_keys_and_sum_to_one(case):
    query, key, value, mask = draw({**case, "dtype": torch.float64})
    weights = scaled_dot_product_attention(query, key, value, mask).weights
    seen = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand(weights.shape)
    assert (weights >= 0).all()
    assert (weights[~seen] == 0).all()
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).double())


@pytest.mark.parametrize("attend", [fast_attention, lambda *x: scaled_dot_product_attention(*x).values])
def test_a_query_without_allowed_keys_gets_zeros_and_a_finite_gradient(attend):
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])
    values = attend(x, x, x, mask)
    assert values[0, 0, 1].tolist() == [0, 0, 0, 0]
    values.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("attend", [fast_attention, scaled_dot_product_attention])
def test_a_mask_of_numbers_is_refused(attend):
    x = torch.randn(1, 3, 4)
    with pytest.raises(TypeError, match="boolean"):
        attend(x, x, x, torch.ones(3, 3))


def test_the_equation_by_hand():
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    value = torch.tensor([[10.0], [20.0]])
    seen = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    attended = scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(attended.weights, torch.tensor([[seen, 1 - seen]]))
    torch.testing.assert_close(attended.values, torch.tensor([[10 * seen + 20 * (1 - seen)]]))


def test_unscaled_attention():
    query, key, value = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5, 2)
    expected = (query @ key.T).softmax(-1) @ value
    torch.testing.assert_close(dot_product_attention(query, key, value).values, expected)


def test_additive_attention_by_hand():
    attention = AdditiveAttention(d_query=3, d_key=5, d_hidden=4)
    query, key, value = torch.randn(2, 3, 3), torch.randn(2, 6, 5), torch.randn(2, 6, 7)
    mask = torch.rand(2, 3, 6) < 0.7
    attended = attention(query, key, value, mask)
    assert attended.values.shape == (2, 3, 7)
    for b in range(2):
        for i in range(3):
            scores = [
                attention.score(torch.tanh(attention.query(query[b, i]) + attention.key(key[b, j])))
                if mask[b, i, j]
                else torch.tensor([-torch.inf])
                for j in range(6)
            ]
            torch.testing.assert_close(attended.weights[b, i], torch.cat(scores).softmax(-1))
            torch.testing.assert_close(attended.values[b, i], attended.weights[b, i] @ value[b])


@given(
    heads=st.integers(1, 5),
    d_k=st.integers(1, 6),
    d_v=st.integers(1, 6),
    length=st.integers(1, 6),
)
def test_heads_are_separate_attentions_concatenated(heads, d_k, d_v, length):
    """Equation by equation: head_i = Attention(xW_i^Q, xW_i^K, xW_i^V), then Concat(…) W^O."""
    attention = FullSelfAttention(8, heads, causal=True, d_k=d_k, d_v=d_v).double()
    x = torch.randn(2, length, 8, dtype=torch.float64)
    record: list[torch.Tensor] = []
    result = attention(x, record=record)
    query, key, value = attention.query_key_value(x).split(attention.widths, dim=-1)
    outs = []
    for i in range(heads):
        head = scaled_dot_product_attention(
            query[..., i * d_k : (i + 1) * d_k],
            key[..., i * d_k : (i + 1) * d_k],
            value[..., i * d_v : (i + 1) * d_v],
            causal_mask(length),
        )
        torch.testing.assert_close(record[0][:, i], head.weights)
        outs.append(head.values)
    torch.testing.assert_close(result, attention.output(torch.cat(outs, dim=-1)))
    torch.testing.assert_close(attention(x), result)


def test_encoder_decoder_attention_reads_the_memory():
    attention = EncoderDecoderAttention(8, 2)
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = torch.tensor([[True, True, True, False, False]]).expand(2, -1)
    record: list[torch.Tensor] = []
    result = attention(x, attention.keys_values(memory), mask, record=record)
    assert record[0].shape == (2, 2, 3, 5)
    memory[:, 3:] = torch.randn(2, 2, 8)
    torch.testing.assert_close(attention(x, attention.keys_values(memory), mask), result)


def test_widths_that_do_not_divide():
    with pytest.raises(ValueError, match=r"10 .* 3 heads"):
        FullSelfAttention(10, 3)
    assert FullSelfAttention(10, 3, d_k=4, d_v=5)(torch.randn(1, 2, 10)).shape == (1, 2, 10)


def test_attention_dropout_only_in_training():
    attention = FullSelfAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_under_autocast_on_the_cpu_the_core_stays_float32():
    query, key, value = (torch.randn(2, 3, 5, 8) for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fast_attention(query.bfloat16(), key.bfloat16(), value.bfloat16())
    exact = fast_attention(*(x.bfloat16().float() for x in (query, key, value)))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact)
