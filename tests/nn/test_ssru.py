import torch

from transduce.nn.ssru import SSRU
from transduce.nn.state import KeyValueCache


def test_equations_of_the_article():
    torch.manual_seed(0)
    unit, x = SSRU(8), torch.randn(2, 5, 8)
    torch.nn.init.normal_(unit.forget_bias)
    state = torch.zeros(2, 8)
    for position in range(5):
        here = x[:, position]
        forget, candidate = unit.forget_candidate.weight.chunk(2)
        gate = torch.sigmoid(here @ forget.T + unit.forget_bias)
        state = gate * state + (1 - gate) * (here @ candidate.T)
        torch.testing.assert_close(unit(x)[:, position], state.clamp(min=0))


def test_steps_equal_the_whole_sequence():
    torch.manual_seed(0)
    unit, x, cache = SSRU(8), torch.randn(3, 6, 8), KeyValueCache(2)
    steps = [unit(x[:, [0, 1]], cache=cache), *(unit(x[:, [i]], cache=cache) for i in range(2, 6))]
    torch.testing.assert_close(torch.cat(steps, dim=1), unit(x))


def test_no_position_depends_on_later_ones():
    torch.manual_seed(0)
    unit, x = SSRU(8), torch.randn(1, 6, 8)
    changed = x.clone()
    changed[:, 4:] += 1
    assert torch.equal(unit(changed)[:, :4], unit(x)[:, :4])
    assert not torch.equal(unit(changed)[:, 4:], unit(x)[:, 4:])
