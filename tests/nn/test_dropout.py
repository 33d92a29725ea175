import copy

import pytest
import torch
from torch import nn

from transduce.nn.dropout import Dropout, use_generator


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_drops_the_share_asked_for_and_keeps_the_mean(p, dtype):
    kept = Dropout(p)(torch.ones(1_000_000, dtype=dtype))
    share = (kept == 0).double().mean().item()
    deviation = (p * (1 - p) / 1e6) ** 0.5
    assert abs(share - p) < 5 * deviation + 1 / 65536
    values = kept.unique()
    assert len(values) == 2
    assert values[1].item() == pytest.approx(1 / (1 - p), rel=1e-2 if dtype == torch.bfloat16 else 1e-4)


def test_elements_are_independent():
    """Of each other, wherever they stand in a 64-bit draw."""
    kept = (Dropout(0.5)(torch.ones(1_000_000)) > 0).double() - 0.5
    for lag in range(1, 9):
        correlation = 4 * (kept[lag:] * kept[:-lag]).mean().item()
        assert abs(correlation) < 5 / 1000
    assert abs(kept.view(-1, 4).mean(0)).max() < 5 / 1000


def test_the_same_generator_state_gives_the_same_mask():
    generator = torch.Generator().manual_seed(1)
    dropout, x = Dropout(0.3, generator), torch.randn(5, 7, 11)
    state = generator.get_state()
    first, second = dropout(x), dropout(x)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x), second)


def test_a_generator_of_its_own_leaves_torchs_alone():
    before = torch.get_rng_state()
    Dropout(0.3, torch.Generator())(torch.ones(100))
    assert torch.equal(torch.get_rng_state(), before)


def test_does_not_depend_on_the_number_of_threads():
    generator, x = torch.Generator(), torch.randn(100_000)
    results, threads = [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        generator.manual_seed(3)
        results.append(Dropout(0.2, generator)(x))
    torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 1001])
def test_any_size(size):
    assert Dropout(0.5)(torch.ones(size)).shape == (size,)


def test_gradient_goes_where_the_value_went():
    x = torch.ones(1000, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_nothing_happens_in_evaluation_or_at_zero():
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_impossible_probabilities(p):
    with pytest.raises(ValueError, match="dropout probability"):
        Dropout(p)


def test_the_highest_probability_is_still_finite():
    assert Dropout(0.9999999)(torch.ones(10_000)).isfinite().all()


def test_one_generator_for_a_whole_model():
    model = nn.Sequential(Dropout(0.5), nn.Sequential(Dropout(0.1)))
    generator = torch.Generator()
    use_generator(model, generator)
    assert model[0].generator is generator
    assert model[1][0].generator is generator
    assert copy.deepcopy(model)[0].generator is not generator
