"""Feed-forward, residual, linear, embedding: each against its equation."""

import math

import pytest
import torch
from torch.nn import functional as F

from transduce.nn.embedding import Embedding
from transduce.nn.feed_forward import FeedForward
from transduce.nn.linear import FusedLinear, Linear
from transduce.nn.residual import Residual


def test_feed_forward_is_equation_2():
    block, x = FeedForward(4, 7), torch.randn(2, 3, 4)
    w1, b1 = block.inner.weight.T, torch.randn(7)
    w2, b2 = block.outer.weight.T, torch.randn(4)
    with torch.no_grad():
        block.inner.bias.copy_(b1)
        block.outer.bias.copy_(b2)
    torch.testing.assert_close(block(x), (x @ w1 + b1).clamp(min=0) @ w2 + b2)


def test_gelu_and_swiglu():
    x = torch.randn(2, 3, 4)
    gelu = FeedForward(4, 7, activation="gelu")
    torch.testing.assert_close(gelu(x), gelu.outer(F.gelu(gelu.inner(x))))
    swiglu = FeedForward(4, 7, activation="swiglu")
    gate, up = swiglu.inner(x).chunk(2, dim=-1)
    torch.testing.assert_close(swiglu(x), swiglu.outer(gate * torch.sigmoid(gate) * up))


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "swish", "swiglu"])
def test_feed_forward_treats_every_position_alike(activation):
    block, x = FeedForward(4, 7, activation=activation), torch.randn(1, 5, 4)
    torch.testing.assert_close(block(x)[:, 2], block(x[:, 2:3])[:, 0])


def test_residual_before_and_after():
    x, sublayer = torch.randn(2, 3, 4), torch.nn.Linear(4, 4)
    post = Residual(4, norm="post")
    torch.testing.assert_close(post(x, sublayer), post.norm(x + sublayer(x)))
    pre = Residual(4, norm="pre")
    torch.testing.assert_close(pre(x, sublayer), x + sublayer(pre.norm(x)))


def test_residual_drops_what_the_sublayer_gives_and_not_x():
    x = torch.full((1, 100, 10), 3.0)
    out = Residual(10, norm="pre", dropout=0.5)(x, torch.ones_like)
    assert set(out.unique().tolist()) == {3.0, 5.0}


def test_layer_norm_divides_by_the_root_of_the_variance_with_n():
    x = torch.randn(3, 4)
    norm = Residual(4, norm="pre", eps=1e-3).norm
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-3).sqrt()
    torch.testing.assert_close(norm(x), expected)


def test_xavier_uniform_and_zero_biases():
    layer = Linear(300, 200)
    bound = math.sqrt(6 / 500)
    assert layer.weight.abs().max().item() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert layer.bias.abs().max().item() == 0


def test_fused_parts_are_initialised_separately():
    layer = FusedLinear(300, [200, 50])
    for part, size in zip(layer.weight.split([200, 50]), (200, 50), strict=True):
        bound = math.sqrt(6 / (300 + size))
        assert part.abs().max().item() <= bound
        assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert layer.bias.abs().max().item() == 0
    x = torch.randn(2, 300)
    first, second = layer(x).split([200, 50], dim=-1)
    torch.testing.assert_close(first, F.linear(x, layer.weight[:200], layer.bias[:200]))
    torch.testing.assert_close(second, F.linear(x, layer.weight[200:], layer.bias[200:]))


def test_embedding_is_scaled_in_and_not_out():
    embedding = Embedding(1000, 64)
    tokens = torch.tensor([[3, 999]])
    torch.testing.assert_close(embedding(tokens)[0, 1], embedding.weight[999] * 8)
    x = torch.randn(2, 64)
    torch.testing.assert_close(embedding.logits(x), x @ embedding.weight.T)
    assert embedding(torch.arange(1000)[None]).std().item() == pytest.approx(1, rel=0.05)
    assert embedding.logits(torch.randn(100, 64)).std().item() == pytest.approx(1, rel=0.05)
