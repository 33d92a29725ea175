"""The kernels in C, each against the line of Python that says what it computes, on every instruction set."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_calls import ENGINES, activate, attend, attend_past, every_engine, needs_engine
from kernel_calls import choose as choose_tokens
from torch.nn import functional as F

from builders import shared_by
from transduce.engine.native import supported_engines
from transduce.engine.packed_linear import PackedLinear
from transduce.engine.packed_stack import ACTIVATIONS
from transduce.nn.attention import scaled_dot_product_attention

SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.integers(1, 6).map(lambda n: 16 * n)


def choose(engine, logits, sums, count, forbidden):
    """The scores, and their places among all continuations of a sentence."""
    scores, parents, tokens = choose_tokens(engine, logits, sums, count, forbidden)
    return scores, parents * logits.size(2) + tokens


@every_engine
@given(seed=SEEDS, rows=st.integers(1, 40), d_in=WIDTHS, d_out=st.integers(1, 150), threads=st.integers(1, 5))
def test_products_equal_those_of_the_quantised_numbers(engine, seed, rows, d_in, d_out, threads):
    """Exactly: the sums of products of whole numbers have no error."""
    torch.manual_seed(seed)
    x, weight, bias = torch.randn(rows, d_in), torch.randn(d_out, d_in), torch.randn(d_out)
    most = x.abs().amax(dim=1, keepdim=True)
    # A number divided by a tensor would be multiplied by its reciprocal, which rounds twice.
    scales, steps_per_unit = most / engine.input_limit, torch.full_like(most, engine.input_limit) / most
    weight_scales = weight.abs().amax(dim=1, keepdim=True) / engine.weight_limit
    weight_steps = (weight / weight_scales).round()
    with shared_by(threads):
        found = PackedLinear(weight, bias, "int8", engine)(x)
    # A compiler may round a product before it adds to it, or not: ties between two steps go either way.
    errors = []
    for product in (x * steps_per_unit, x.double() * steps_per_unit.double()):
        sums = (product.round().long() @ weight_steps.long().t()).float()
        errors.append((sums * (scales * weight_scales.t()) + bias - found).abs() / (1 + found.abs()))
    assert torch.minimum(*(error.amax(dim=1) for error in errors)).max() < 1e-5


@every_engine
@given(seed=SEEDS, rows=st.integers(1, 40), d_in=WIDTHS, d_out=st.integers(1, 150), threads=st.integers(1, 5))
def test_products_in_float32(engine, seed, rows, d_in, d_out, threads):
    torch.manual_seed(seed)
    x, weight, bias = torch.randn(rows, d_in), torch.randn(d_out, d_in), torch.randn(d_out)
    with shared_by(threads):
        found = PackedLinear(weight, bias, "float32", engine)(x)
    torch.testing.assert_close(
        found, F.linear(x.double(), weight.double(), bias.double()).float(), rtol=1e-5, atol=1e-5
    )


@every_engine
@given(seed=SEEDS, rows=st.integers(1, 40), d_in=WIDTHS, d_out=st.integers(1, 150), threads=st.integers(1, 5))
def test_products_in_bfloat16(engine, seed, rows, d_in, d_out, threads):
    """Inputs and weights are rounded as torch rounds them; sums are in float32."""
    torch.manual_seed(seed)
    x, weight, bias = torch.randn(rows, d_in), torch.randn(d_out, d_in), torch.randn(d_out)
    with shared_by(threads):
        found = PackedLinear(weight, bias, "bfloat16", engine)(x)
    expected = F.linear(x.bfloat16().double(), weight.bfloat16().double(), bias.double()).float()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@every_engine
@pytest.mark.parametrize("kind", ["int8", "float32", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_others_in_a_batch_change_nothing(engine, kind, threads):
    packed, x = PackedLinear(torch.randn(150, 32), None, kind, engine), torch.randn(113, 32)
    alone = torch.cat([packed(row[None]) for row in x])
    with shared_by(threads):
        for count in (1, 2, 3, 4, 5, 6, 7, 12, 13, 97, 113):
            assert torch.equal(packed(x[:count]), alone[:count])
        assert torch.equal(packed(torch.cat([x, 1e6 * torch.randn(3, 32)]))[:113], alone)


@every_engine
def test_the_largest_products_do_not_overflow(engine):
    """On processors without 8-bit dot products, pairs of products are added in 16 bits."""
    for sign in (1, -1):
        weight, x = torch.ones(8, 512), sign * torch.ones(3, 512)
        found = PackedLinear(weight, None, "int8", engine)(x)
        torch.testing.assert_close(found, torch.full((3, 8), sign * 512.0))


@every_engine
def test_zeros_and_outliers(engine):
    weight = torch.randn(8, 16)
    packed = PackedLinear(weight, None, "int8", engine)
    assert torch.equal(packed(torch.zeros(2, 16)), torch.zeros(2, 8))
    constant = PackedLinear(torch.zeros(8, 16), torch.ones(8), "int8", engine)
    assert torch.equal(constant(torch.randn(2, 16)), torch.ones(2, 8))
    x = torch.zeros(1, 16)
    x[0, 3] = 1e30
    torch.testing.assert_close(packed(x), x @ weight.t(), rtol=0.05, atol=2e28)


@every_engine
@given(
    seed=SEEDS,
    queries=st.integers(1, 9),
    length=st.integers(1, 40),
    d_k=st.sampled_from([16, 48, 64]),
    d_v=st.sampled_from([16, 32, 80]),
)
def test_attention_is_the_equation(engine, seed, queries, length, d_k, d_v):
    torch.manual_seed(seed)
    query, key, value = torch.randn(queries, d_k), torch.randn(length, d_k), torch.randn(length, d_v)
    found, weights = attend(engine, query, key, value)
    expected = scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(found, expected.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights, expected.weights, rtol=1e-5, atol=1e-6)


@every_engine
@given(
    seed=SEEDS,
    heads=st.integers(1, 3),
    length=st.integers(1, 40),
    page=st.integers(1, 50),
    d=st.sampled_from([16, 48, 64, 80]),
)
def test_attention_to_a_past_that_is_in_several_rows_and_pages(engine, seed, heads, length, page, d):
    torch.manual_seed(seed)
    pages = -(-length // page)
    keys, values = (torch.randn(pages, 4, page, heads, d) for _ in range(2))
    query, rows = torch.randn(heads, d), torch.randint(2, 4, (length,))  # counted from row 2 on
    found = attend_past(engine, query, keys, values, rows, length)
    places = torch.arange(length)
    key, value = (part[places // page, rows, places % page].transpose(0, 1) for part in (keys, values))
    expected = scaled_dot_product_attention(query[:, None], key, value).values[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@every_engine
def test_attention_with_extreme_scores(engine):
    query, key, value = 1e4 * torch.randn(2, 16), torch.randn(30, 16), torch.randn(30, 16)
    expected = scaled_dot_product_attention(query, key, value).values
    torch.testing.assert_close(attend(engine, query, key, value)[0], expected)


@every_engine
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_are_not_hidden(engine, bad):
    x, weight = torch.randn(3, 16), torch.randn(5, 16)
    x[1, 4] = bad
    for kind in ("int8", "float32", "bfloat16"):
        found = PackedLinear(weight, None, kind, engine)(x)
        assert found.isfinite().all(dim=1).tolist() == [True, False, True]
    query, key, value = (torch.randn(3, 16) for _ in range(3))
    value[2] = bad
    assert not attend(engine, query, key, value)[0].isfinite().any()
    key[2] = bad
    assert attend(engine, query, key, value)[0].isnan().any()
    logits = torch.randn(2, 2, 30)
    logits[1, 1, 7] = bad
    scores, _ = choose(engine, logits, torch.zeros(2, 2), 3, torch.tensor([0]))
    assert scores.isnan().all(dim=1).tolist() == [False, bad != -torch.inf]


@every_engine
def test_probabilities_are_never_above_one(engine):
    logits = torch.randn(200, 1, 50)
    logits[:, 0, 9] = 40 + torch.rand(200)
    scores, _ = choose(engine, logits, torch.zeros(200, 1), 1, torch.tensor([0]))
    assert scores.max() <= 0


@every_engine
def test_exponentials_are_right_to_the_last_bits(engine):
    """Each key has a value of its own: the weights themselves come out."""
    length = 16
    query, key = torch.zeros(1, 16), torch.zeros(length, 16)
    query[..., 0], key[..., 0] = 4.0, torch.linspace(-60, 0, length)
    found, _ = attend(engine, query, key, torch.eye(length))
    expected = scaled_dot_product_attention(query.double(), key.double(), torch.eye(length).double()).values
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


@every_engine
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(engine, name):
    if name == "relu":
        return  # a part of the product; see below
    x = torch.cat(
        [torch.linspace(-12, 12, 480), torch.tensor([0.0, -0.0, 1e-6, -1e-6, 80, -80, 1e4, -1e4] * 4)]
    )
    x = x.view(2, 256)
    expected = {
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "swish": F.silu,
        "swiglu": lambda x: F.silu(x[:, :128]) * x[:, 128:],
    }[name](x.double()).float()
    found = activate(engine, ACTIVATIONS[name], x)[:, : expected.size(1)]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


@every_engine
@given(
    seed=SEEDS,
    sentences=st.integers(1, 5),
    width=st.integers(1, 4),
    vocabulary=st.integers(3, 70),
    count=st.integers(1, 8),
)
def test_the_best_continuations_are_those_of_a_full_sort(engine, seed, sentences, width, vocabulary, count):
    torch.manual_seed(seed)
    logits, sums = 5 * torch.randn(sentences, width, vocabulary), -10 * torch.rand(sentences, width)
    forbidden = torch.tensor([0, vocabulary - 1])
    count = min(count, width * (vocabulary - 2))
    scores = logits.log_softmax(dim=-1) + sums[:, :, None]
    scores[:, :, forbidden] = -torch.inf
    expected = scores.flatten(1).topk(count, dim=1)
    found, places = choose(engine, logits, sums, count, forbidden)
    torch.testing.assert_close(found, expected.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, scores.flatten(1).gather(1, places), rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == count for row in places.tolist())


@every_engine
def test_no_forbidden_tokens(engine):
    logits, sums = torch.randn(2, 3, 7), torch.randn(2, 3)
    found, _ = choose(engine, logits, sums, 4, torch.tensor([]))
    expected = (logits.log_softmax(dim=-1) + sums[:, :, None]).flatten(1).topk(4, dim=1).values
    torch.testing.assert_close(found, expected)


@every_engine
def test_too_few_possible_continuations_leave_impossible_ones(engine):
    logits, sums = torch.zeros(1, 2, 4), torch.tensor([[0.0, -torch.inf]])
    found, places = choose(engine, logits, sums, 5, torch.tensor([0]))
    assert found[0].isfinite().tolist() == [True] * 3 + [False] * 2
    assert sorted(places[0, :3].tolist()) == [1, 2, 3]
    assert ((places >= 0) & (places < 8)).all()


@every_engine
def test_unsuitable_arguments_are_refused(engine):
    with pytest.raises(ValueError, match=r"16.*32"):
        PackedLinear(torch.randn(8, 16), None, "float32", engine)(torch.randn(2, 32))
    with pytest.raises(ValueError, match="out of range"):
        PackedLinear(torch.randn(8, 20), None, "float32", engine)(torch.randn(2, 20))


@every_engine
@pytest.mark.parametrize("kind", ["int8", "float32", "bfloat16"])
def test_copies_compute_the_same(engine, kind):
    packed, x = PackedLinear(torch.randn(8, 16), torch.randn(8), kind, engine), torch.randn(2, 16)
    copied = copy.deepcopy(packed)
    assert copied.struct.weights != packed.struct.weights
    assert torch.equal(copied(x), packed(x))


@needs_engine
def test_instruction_sets_with_the_same_numbers_agree_to_the_last_bit():
    """Sums of 8-bit products are exact, and what follows is the same on all that multiply and add at once."""
    weight, bias, x = torch.randn(70, 64), torch.randn(70), torch.randn(9, 64)
    found = {}
    for each in supported_engines():
        if each.name != "generic":
            numbers = each.input_limit, each.weight_limit
            found.setdefault(numbers, []).append(PackedLinear(weight, bias, "int8", each)(x))
    for several in found.values():
        assert all(torch.equal(several[0], other) for other in several)


@needs_engine
def test_plain_c_is_always_there_and_last():
    assert [each.values[0].name for each in ENGINES][-1] == "generic"
