"""Why the dot products are scaled (section 3.2.1), and what many heads cost (3.2.2)."""

import time
from collections.abc import Callable, Iterator

import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.nn.attention import AdditiveAttention, SelfAttention, scaled_dot_product_attention
from transduce.paper.claim import Claim

SAMPLES = 100_000


def claims() -> Iterator[Claim]:
    """Variance, the softmax's gradient, additive attention's price, the price of heads."""
    for d_k in (64, 512):
        yield _variance(d_k)
    yield _softmax_gradient(d_k=512)
    yield _additive_is_slower()
    yield _heads_cost_the_same()


def _variance(d_k: int) -> Claim:
    products = (torch.randn(SAMPLES, d_k) * torch.randn(SAMPLES, d_k)).sum(-1)
    before, after = products.var().item(), (products / d_k**0.5).var().item()
    return Claim(
        "3.2.1",
        f"q·k has variance d_k = {d_k}, scaled 1",
        f"{d_k} → 1",
        f"{before:.1f} → {after:.3f}",
        abs(before / d_k - 1) < 0.03 and abs(after - 1) < 0.03,
    )


def _softmax_gradient(d_k: int, keys: int = 64, queries: int = 2000) -> Claim:
    """The softmax's Jacobian is diag(p) − ppᵀ: it vanishes as p nears a single 1."""

    def size_of_jacobian(scores: torch.Tensor) -> float:
        p = scores.softmax(-1)
        jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
        return float(jacobian.flatten(1).norm(dim=-1).median())

    scores = (torch.randn(queries, 1, d_k) @ torch.randn(queries, d_k, keys)).squeeze(1)
    without, scaled = size_of_jacobian(scores), size_of_jacobian(scores / d_k**0.5)
    return Claim(
        "3.2.1",
        f"unscaled, the softmax loses its gradient (d_k = {d_k})",
        "extremely small",
        f"‖∂softmax‖ {without:.3f}, scaled {scaled:.3f}",
        without < scaled / 10,
    )


def _additive_is_slower(length: int = 256, width: int = 64) -> Claim:
    x = torch.randn(1, length, width)
    additive = AdditiveAttention(width, width, width)

    def seconds(run: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        return min(times)

    with torch.no_grad():
        ratio = seconds(lambda: additive(x, x, x)) / seconds(lambda: scaled_dot_product_attention(x, x, x))
    return Claim(
        "3.2.1",
        f"dot products are faster than additive (n = {length})",
        "much faster",
        f"{ratio:.0f}× faster",
        ratio > 2,
    )


def _heads_cost_the_same(d_model: int = 512, length: int = 64) -> Claim:
    counted = []
    for heads in (8, 1):
        # The written-out equation: torch counts a fused kernel by rules of its own.
        counted.append(count_multiplications(SelfAttention(d_model, heads), torch.randn(1, length, d_model)))
    return Claim(
        "3.2.2",
        "8 heads of width 64 cost what one of 512 costs",
        "similar",
        f"{counted[0] / counted[1]:.3f} × as much",
        abs(counted[0] / counted[1] - 1) < 0.01,
    )


def count_multiplications(attention: SelfAttention, x: torch.Tensor) -> int:
    """Multiplications of all matrix products in one pass, projections included."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        attention(x, record=[])
    return int(counter.get_total_flops()) // 2
