import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.nn.positional import (
    LearnedPositions,
    NoPositions,
    RotaryPositions,
    SinusoidalPositions,
    sinusoids,
)


@given(position=st.integers(0, 100_000), d_model=st.integers(1, 65))
def test_sinusoids_are_the_papers_formula(position, d_model):
    row = sinusoids(1, d_model, start=position)[0]
    for j in range(d_model):
        angle = position / 10_000 ** (2 * (j // 2) / d_model)
        expected = math.sin(angle) if j % 2 == 0 else math.cos(angle)
        assert row[j].item() == pytest.approx(expected, abs=1e-6)


@given(start=st.integers(0, 300), length=st.integers(1, 300), d_model=st.integers(1, 9))
def test_sinusoids_do_not_depend_on_the_start(start, length, d_model):
    positions, x = SinusoidalPositions(d_model), torch.zeros(2, length, d_model)
    direct = positions(x, start)
    assert torch.equal(direct[0], sinusoids(length, d_model, start=start))
    assert torch.equal(
        SinusoidalPositions(d_model)(torch.zeros(1, start + length, d_model))[:, start:][0], direct[1]
    )


def test_sinusoids_are_not_part_of_the_saved_model():
    assert list(SinusoidalPositions(8).state_dict()) == []
    assert list(RotaryPositions(8).state_dict()) == []


@pytest.mark.parametrize("positions", [SinusoidalPositions(6), RotaryPositions(6)])
def test_position_tables_survive_casts_and_copies(positions):
    """Inference mode before training, other types in between, and lengths that differ between processes."""
    x = torch.randn(2, 3, 5, 6, requires_grad=True)
    x = x if isinstance(positions, RotaryPositions) else x[0]
    with torch.inference_mode():
        expected = positions(x).clone()
    positions(x).sum().backward()
    positions.bfloat16().float()
    assert torch.equal(positions(x), expected)
    assert list(positions.buffers()) == []


def test_a_rotation_by_hand():
    """The second pair of four turns by 1/100 of the first's angle, which is the position."""
    x = torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(1, 1, 3, 4)
    turned = RotaryPositions(4)(x)[0, 0, 2]
    expected = [math.cos(2), math.sin(2), math.cos(0.02), math.sin(0.02)]
    torch.testing.assert_close(turned, torch.tensor(expected))


def test_learned_positions_beyond_max_length_are_refused():
    positions = LearnedPositions(5, 4)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(positions(x, 2), x + positions.weight[2:5])
    with pytest.raises(ValueError, match=r"6 positions.*5"):
        positions(x, 3)


def test_no_positions():
    x = torch.randn(2, 3, 4)
    assert NoPositions()(x, 7) is x


@given(d_k=st.integers(2, 17), distance=st.integers(0, 30), shift=st.integers(0, 500))
def test_rotary_products_depend_on_the_distance_alone(d_k, distance, shift):
    rotary = RotaryPositions(d_k)
    query, key = torch.randn(2, 1, 1, 1, d_k, dtype=torch.float64).unbind()

    def product(i, j):
        return (rotary(query, i) * rotary(key, j)).sum().item()

    assert product(distance + shift, shift) == pytest.approx(product(distance, 0), abs=1e-4)


def test_rotary_positions_need_two_dimensions():
    with pytest.raises(ValueError, match="d_k"):
        RotaryPositions(1)


def test_rotation_keeps_norms_and_is_the_identity_at_position_0():
    rotary, x = RotaryPositions(6), torch.randn(2, 3, 10, 6)
    turned = rotary(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[:, :, 0], x[:, :, 0])
    assert not torch.allclose(turned[:, :, 1], x[:, :, 1])
    torch.testing.assert_close(rotary(x[:, :, 4:], 4), turned[:, :, 4:])
