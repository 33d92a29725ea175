"""The scaling of dot products (section 3.2.1) and the cost of several heads (3.2.2)."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from transduce.nn.attention import Attended, dot_product_attention, scaled_dot_product_attention
from transduce.nn.multi_head_attention import FullSelfAttention
from transduce.nn.recurrent_attention import AdditiveAttention
from transduce.paper.claim import Claim
from transduce.paper.counting import count_multiplications

SAMPLES = 25_000

Attention = Callable[[Tensor, Tensor, Tensor], Attended]


def claims() -> Iterator[Claim]:
    """Check the variance of scores, the softmax's gradient, and the cost of additive attention and heads."""
    for d_k in (64, 512):
        yield _variance(d_k)
    yield _softmax_gradient(d_k=512)
    yield _additive_needs_more()
    yield _heads_cost_the_same()


def _variance(d_k: int) -> Claim:
    before = _score_variance(dot_product_attention, d_k)
    after = _score_variance(scaled_dot_product_attention, d_k)
    return Claim(
        "3.2.1",
        f"q·k has variance d_k = {d_k}, and 1 after scaling",
        f"{d_k} → 1",
        f"{before:.1f} → {after:.3f}",
        abs(before / d_k - 1) < 0.03 and abs(after - 1) < 0.03,
    )


def _score_variance(attend: Attention, d_k: int) -> float:
    """Estimate the variance of the scores inside an attention function from its weights.

    The logarithm of the ratio of two weights is the difference of two scores, which has twice their variance.
    """
    query, key, value = _sample(SAMPLES, keys=2, d_k=d_k)
    log_weights = attend(query, key, value).weights.squeeze(1).log()
    return (log_weights[:, 0] - log_weights[:, 1]).var().item() / 2


def _sample(queries: int, keys: int, d_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sample queries, keys of each query (mean 0, variance 1) and values, in float64 for tiny weights."""
    query, key = torch.randn(queries, 1, d_k), torch.randn(queries, keys, d_k)
    return query.double(), key.double(), torch.zeros(queries, keys, 1, dtype=torch.float64)


def _softmax_gradient(d_k: int) -> Claim:
    query, key, value = _sample(500, keys=64, d_k=d_k)

    def jacobian_norm(attend: Attention) -> float:
        """Return the norm of diag(p) − ppᵀ, the softmax's Jacobian, which vanishes as p becomes one-hot."""
        p = attend(query, key, value).weights.squeeze(1)
        jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
        return float(jacobian.flatten(1).norm(dim=-1).median())

    unscaled, scaled = jacobian_norm(dot_product_attention), jacobian_norm(scaled_dot_product_attention)
    return Claim(
        "3.2.1",
        f"without scaling, the softmax's gradients vanish (d_k = {d_k})",
        "extremely small",
        f"norm {unscaled:.3f}, with scaling {scaled:.3f}",
        unscaled < scaled / 10,
    )


def _additive_needs_more(length: int = 256, width: int = 64) -> Claim:
    """Count the saved numbers; a timing would depend on the machine and its load."""

    def saved_for_backward(run: Callable[[], object]) -> int:
        sizes: list[int] = []

        def count(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            run()
        return sum(sizes)

    x = torch.randn(1, length, width, requires_grad=True)
    additive = AdditiveAttention(width, width, width)
    ratio = saved_for_backward(lambda: additive(x, x, x)) / saved_for_backward(
        lambda: scaled_dot_product_attention(x, x, x)
    )
    return Claim(
        "3.2.1",
        f"dot-product attention needs less memory than additive (n = {length})",
        "more space-efficient",
        f"1/{ratio:.0f} of the numbers saved for training",
        ratio > 10,
    )


def _heads_cost_the_same(d_model: int = 512, length: int = 64) -> Claim:
    def cost_of(heads: int) -> int:
        attention, x = FullSelfAttention(d_model, heads), torch.randn(1, length, d_model)
        # With a record, attention is computed step by step: torch cannot count inside a fused kernel.
        return count_multiplications(lambda: attention(x, record=[]))

    ratio = cost_of(8) / cost_of(1)
    return Claim(
        "3.2.2",
        "8 heads of width 64 cost as much as one of width 512",
        "similar",
        f"{ratio:.3f} times the cost",
        abs(ratio - 1) < 0.01,
    )
