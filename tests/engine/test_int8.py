import pytest
import torch
from torch import nn

from transduce.engine.int8 import Int8Linear, Int8Output, TorchLinear, quantise_linear_layers
from transduce.machine import cpu_reports

SEVEN_BITS = not (cpu_reports("avx512_vnni") or cpu_reports("avx_vnni"))
NEEDS_VNNI = pytest.mark.skipif(SEVEN_BITS, reason="this processor lacks VNNI: 8-bit products saturate")


@pytest.mark.parametrize("seven_bits", [pytest.param(False, marks=NEEDS_VNNI), True])
@pytest.mark.parametrize("shape", [(1, 16), (7, 16), (3, 5, 16)])
def test_products_are_right_to_eight_bits(shape, seven_bits):
    """Weights are off by at most half a step of their row, inputs by a step of the whole."""
    weight, bias, x = torch.randn(32, 16), torch.randn(32), torch.randn(shape)
    found = Int8Linear(weight, bias, seven_bits=seven_bits)(x)
    exact = nn.functional.linear(x, weight, bias)
    step = (x.max() - x.min()) / (127 if seven_bits else 255)
    worst = 16 * (weight.abs().amax(dim=1) / 254 * x.abs().max() + step * weight.abs().amax(dim=1))
    assert ((found - exact).abs() <= worst).all()
    assert (found - exact).abs().mean() < 0.05  # of values around 4


def test_torch_gives_the_same_to_eight_bits():
    """What computes where there is no engine."""
    weight, bias, x = torch.randn(64, 16), torch.randn(64), torch.randn(3, 7, 16)
    found = TorchLinear(weight, bias, seven_bits=SEVEN_BITS)(x)
    packed = Int8Linear(weight, bias, seven_bits=SEVEN_BITS)(x)
    torch.testing.assert_close(found, packed, atol=0.2, rtol=0)
    assert found.shape == (3, 7, 64)


def test_rows_of_different_sizes_keep_their_precision():
    weight = torch.randn(4, 64) * torch.tensor([1e-3, 1.0, 1e3, 0.0])[:, None]
    x = torch.randn(5, 64)
    found, exact = Int8Linear(weight, None, seven_bits=SEVEN_BITS)(x), x @ weight.t()
    for row in range(3):
        assert (found[:, row] - exact[:, row]).abs().max() < 0.05 * exact[:, row].abs().max()
    assert found[:, 3].abs().max() < 1e-6


def test_every_linear_layer_is_replaced_and_nothing_else():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ModuleList([nn.Linear(8, 4)]))
    quantise_linear_layers(model)
    assert [type(module) for module in model.modules() if type(module) in (nn.Linear, Int8Linear)] == [
        Int8Linear,
        Int8Linear,
    ]
    assert isinstance(model[1], nn.LayerNorm)


def test_the_output_has_no_bias():
    weight, x = torch.randn(50, 16), torch.randn(3, 16)
    found = Int8Output(weight, seven_bits=SEVEN_BITS).logits(x)
    torch.testing.assert_close(found, x @ weight.t(), atol=0.5 if SEVEN_BITS else 0.3, rtol=0)
