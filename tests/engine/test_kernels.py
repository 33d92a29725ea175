"""The kernels in C, each against the line of Python that says what it computes."""

import copy
import ctypes
import subprocess

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_calls import AttentionStruct, ChoiceStruct, attend, needs_kernels
from kernel_calls import choose as choose_tokens
from torch import nn

from builders import shared_by
from transduce.engine import kernels
from transduce.engine.kernels import LinearStruct, PackedLinear
from transduce.engine.packed_search import EndingStruct, SearchStruct
from transduce.engine.packed_stack import LayerStruct, NormStruct, StackStruct
from transduce.engine.packed_step import LayerPointers, StepStruct
from transduce.nn.attention import scaled_dot_product_attention
from transduce.nn.state import select_rows

SEEDS = st.integers(0, 2**32 - 1)


def choose(logits, sums, count, forbidden):
    """The scores, and their places among all continuations of a sentence."""
    scores, parents, tokens = choose_tokens(logits, sums, count, forbidden)
    return scores, parents * logits.size(2) + tokens


@pytest.fixture
def afresh(monkeypatch, tmp_path):
    """As if nothing was compiled yet, and no cache but this."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.library.cache_clear()
    yield tmp_path
    kernels.library.cache_clear()


@needs_kernels
@given(
    seed=SEEDS,
    rows=st.integers(1, 40),
    d_in=st.integers(1, 20).map(lambda n: 4 * n),
    d_out=st.integers(1, 150),
    threads=st.integers(1, 5),
)
def test_products_equal_those_of_the_quantised_numbers(seed, rows, d_in, d_out, threads):
    """Exactly: the sums of products of whole numbers have no error."""
    torch.manual_seed(seed)
    x, weight, bias = torch.randn(rows, d_in), torch.randn(d_out, d_in), torch.randn(d_out)
    most = x.abs().amax(dim=1, keepdim=True)
    scales, steps = most / 127, (x * (127 / most)).round()
    weight_scales = weight.abs().amax(dim=1, keepdim=True) / 127
    weight_steps = (weight / weight_scales).round()
    expected = (steps.long() @ weight_steps.long().t()).float() * (scales * weight_scales.t()) + bias
    with shared_by(threads):
        found = PackedLinear(weight, bias)(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@needs_kernels
def test_the_others_in_a_batch_change_nothing():
    packed, x = PackedLinear(torch.randn(70, 32), None), torch.randn(13, 32)
    alone = torch.cat([packed(row[None]) for row in x])
    assert torch.equal(packed(x), alone)
    assert torch.equal(packed(torch.cat([x, 1e6 * torch.randn(3, 32)]))[:13], alone)


@needs_kernels
def test_zeros_and_outliers():
    weight = torch.randn(8, 16)
    assert torch.equal(PackedLinear(weight, None)(torch.zeros(2, 16)), torch.zeros(2, 8))
    assert torch.equal(PackedLinear(torch.zeros(8, 16), torch.ones(8))(torch.randn(2, 16)), torch.ones(2, 8))
    x = torch.zeros(1, 16)
    x[0, 3] = 1e30
    torch.testing.assert_close(PackedLinear(weight, None)(x), x @ weight.t(), rtol=0.05, atol=1e28)


@needs_kernels
@given(
    seed=SEEDS,
    batch=st.integers(1, 4),
    heads=st.integers(1, 3),
    queries=st.integers(1, 5),
    length=st.integers(1, 40),
    d_k=st.sampled_from([16, 48, 64]),
    d_v=st.sampled_from([16, 32, 80]),
    masked=st.booleans(),
    threads=st.integers(1, 3),
)
def test_attention_is_the_equation(seed, batch, heads, queries, length, d_k, d_v, masked, threads):
    torch.manual_seed(seed)
    query = torch.randn(batch, queries, heads, d_k).transpose(1, 2)
    room = length + 3  # as a cache has it
    key, value = (torch.randn(batch, heads, room, width)[:, :, :length] for width in (d_k, d_v))
    mask = torch.rand(batch, length) < 0.6 if masked else None  # sometimes all False
    with shared_by(threads):
        found = attend(query, key, value, mask)
    mask = None if mask is None else mask[:, None, None]
    expected = scaled_dot_product_attention(query, key, value, mask).values
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@needs_kernels
def test_attention_with_extreme_scores():
    query, key = 1e4 * torch.randn(2, 1, 1, 16), torch.randn(2, 1, 30, 16)
    value = torch.randn(2, 1, 30, 16)
    expected = scaled_dot_product_attention(query, key, value).values
    torch.testing.assert_close(attend(query, key, value), expected)


@needs_kernels
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_are_not_hidden(bad):
    x, weight = torch.randn(3, 16), torch.randn(5, 16)
    x[1, 4] = bad
    found = PackedLinear(weight, None)(x)
    assert found.isnan().all(dim=1).tolist() == [False, True, False]
    query, key, value = (torch.randn(2, 1, 3, 16) for _ in range(3))
    value[1, 0, 2] = bad
    assert attend(query, key, value).isfinite().flatten(1).all(dim=1).tolist() == [True, False]
    key[1, 0, 2] = bad
    assert attend(query, key, value).isnan().flatten(1).any(dim=1).tolist() == [False, True]
    logits = torch.randn(2, 2, 30)
    logits[1, 1, 7] = bad
    scores, _ = choose(logits, torch.zeros(2, 2), 3, torch.tensor([0]))
    assert scores.isnan().all(dim=1).tolist() == [False, bad != -torch.inf]


@needs_kernels
def test_probabilities_are_never_above_one():
    logits = torch.randn(200, 1, 50)
    logits[:, 0, 9] = 40 + torch.rand(200)
    scores, _ = choose(logits, torch.zeros(200, 1), 1, torch.tensor([0]))
    assert scores.max() <= 0


@needs_kernels
def test_exponentials_are_right_to_the_last_bits():
    """Each key has a value of its own: the weights themselves come out."""
    length = 16
    query, key = torch.zeros(1, 1, 1, 16), torch.zeros(1, 1, length, 16)
    query[..., 0], key[..., 0] = 4.0, torch.linspace(-60, 0, length)
    value = torch.eye(length)[None, None]
    expected = scaled_dot_product_attention(query.double(), key.double(), value.double()).values
    torch.testing.assert_close(attend(query, key, value).double(), expected, rtol=1e-6, atol=0)


@needs_kernels
def test_unsuitable_arguments_are_declined():
    held, rows = torch.randn(4, 2, 5, 3), torch.tensor([0, 3])
    assert not kernels.move_rows([held.transpose(1, 2)], rows, 1)
    assert not kernels.move_rows([held], torch.tensor([0, 1, 2, 3, 0]), 5)
    for row in (-1, 4, 500):
        assert not kernels.move_rows([held], torch.tensor([0, row]), 5)
    with pytest.raises(ValueError, match=r"16.*12"):
        PackedLinear(torch.randn(8, 16), None)(torch.randn(2, 12))


@needs_kernels
def test_copies_compute_the_same():
    packed, x = PackedLinear(torch.randn(8, 16), torch.randn(8)), torch.randn(2, 16)
    copied = copy.deepcopy(packed)
    assert copied.struct.weights != packed.struct.weights
    assert torch.equal(copied(x), packed(x))


@needs_kernels
def test_structures_have_the_same_size_in_python_and_c():
    declared = (
        LinearStruct,
        AttentionStruct,
        ChoiceStruct,
        NormStruct,
        LayerStruct,
        StackStruct,
        LayerPointers,
        StepStruct,
        EndingStruct,
        SearchStruct,
    )
    sizes = (ctypes.c_long * len(declared)).in_dll(kernels.required_library(), "sizes")
    assert list(sizes) == [ctypes.sizeof(one) for one in declared]


@needs_kernels
@given(
    seed=SEEDS,
    sentences=st.integers(1, 5),
    width=st.integers(1, 4),
    vocabulary=st.integers(3, 70),
    count=st.integers(1, 8),
    threads=st.integers(1, 3),
)
def test_the_best_continuations_are_those_of_a_full_sort(seed, sentences, width, vocabulary, count, threads):
    torch.manual_seed(seed)
    logits, sums = 5 * torch.randn(sentences, width, vocabulary), -10 * torch.rand(sentences, width)
    forbidden = torch.tensor([0, vocabulary - 1])
    count = min(count, width * (vocabulary - 2))
    scores = logits.log_softmax(dim=-1) + sums[:, :, None]
    scores[:, :, forbidden] = -torch.inf
    expected = scores.flatten(1).topk(count, dim=1)
    with shared_by(threads):
        found, places = choose(logits, sums, count, forbidden)
    torch.testing.assert_close(found, expected.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, scores.flatten(1).gather(1, places), rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == count for row in places.tolist())


@needs_kernels
def test_no_forbidden_tokens_and_strided_sums():
    logits, sums = torch.randn(2, 3, 7), torch.randn(3, 2).t()
    found, _ = choose(logits, sums, 4, torch.tensor([]))
    expected = (logits.log_softmax(dim=-1) + sums[:, :, None]).flatten(1).topk(4, dim=1).values
    torch.testing.assert_close(found, expected)


@needs_kernels
def test_too_few_possible_continuations_leave_impossible_ones():
    logits, sums = torch.zeros(1, 2, 4), torch.tensor([[0.0, -torch.inf]])
    found, places = choose(logits, sums, 5, torch.tensor([0]))
    assert found[0].isfinite().tolist() == [True] * 3 + [False] * 2
    assert sorted(places[0, :3].tolist()) == [1, 2, 3]
    assert ((places >= 0) & (places < 8)).all()


@needs_kernels
@given(
    seed=SEEDS, rows=st.integers(1, 8), filled=st.integers(0, 5), dtype=st.sampled_from(["float32", "bool"])
)
def test_rows_are_moved_as_indexed_or_not_at_all(seed, rows, filled, dtype):
    torch.manual_seed(seed)
    held = torch.randint(0, 2 if dtype == "bool" else 99, (8, 3, 5, 4)).to(getattr(torch, dtype))
    before, wanted = held.clone(), torch.randint(0, 8, (rows,))
    other = held.flip(0).contiguous()
    flipped = other.clone()
    done = kernels.move_rows([held, other], wanted, filled)
    expected = before.clone()
    if done:
        expected[:rows, :, :filled] = before[wanted][:, :, :filled]
        flipped[:rows, :, :filled] = flipped[wanted][:, :, :filled]
    assert torch.equal(held, expected)
    assert torch.equal(other, flipped)
    sources = {row for place, row in enumerate(wanted.tolist()) if row != place}
    targets = {place for place, row in enumerate(wanted.tolist()) if row != place}
    assert done == (not sources & targets)
    # Where it is not done, the caller does it.
    again = select_rows(before.clone(), wanted, filled)
    assert torch.equal(again[:, :, :filled], before[wanted][:, :, :filled])


@needs_kernels
def test_the_library_is_compiled_once(afresh, monkeypatch):
    assert kernels.library() is not None
    (made,) = (path for path in afresh.rglob("*") if path.is_file())
    assert made.suffix == ".so"
    kernels.library.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert kernels.library() is not None


@pytest.mark.parametrize("missing", ["compiler", "working compiler", "instruction set", "permission"])
def test_without_the_library_torch_computes(afresh, monkeypatch, missing):
    if missing == "compiler":
        monkeypatch.setenv("CC", "no-such-compiler")
    elif missing == "working compiler":
        monkeypatch.setenv("CC", "false")
    elif missing == "instruction set":
        monkeypatch.setattr(kernels, "cpu_reports", lambda feature: False)
    else:
        monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    assert kernels.library() is None
    assert not kernels.can_pack(nn.Linear(8, 8).weight)
    assert not list(afresh.rglob("*.so"))


@needs_kernels
def test_a_folder_that_cannot_be_written_is_no_failure(afresh, monkeypatch):
    (afresh / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(afresh / "file"))
    assert kernels.library() is None


@needs_kernels
def test_a_cache_folder_that_others_can_write_to_is_not_trusted(afresh):
    (afresh / "transduce").mkdir()
    (afresh / "transduce").chmod(0o777)
    assert kernels.library() is None
    (afresh / "transduce").chmod(0o700)
    kernels.library.cache_clear()
    assert kernels.library() is not None


@needs_kernels
@pytest.mark.parametrize("compiler", ["", "cc -O2"])
def test_the_compiler_may_have_options(afresh, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    assert kernels.library() is not None


@needs_kernels
def test_an_empty_library_file_is_compiled_again(afresh):
    assert kernels.library() is not None
    (made,) = afresh.rglob("*.so")
    made.unlink()
    made.write_bytes(b"")
    kernels.library.cache_clear()
    assert kernels.library() is not None


def test_without_a_home_folder_torch_computes(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(kernels.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    kernels.library.cache_clear()
    try:
        assert kernels.library() is None
    finally:
        kernels.library.cache_clear()
