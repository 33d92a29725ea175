"""Why the dot products are scaled (section 3.2.1), and what many heads cost (3.2.2)."""

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
    """Variance, the softmax's gradient, additive attention's price, the price of heads."""
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
        f"q·k has variance d_k = {d_k}, scaled 1",
        f"{d_k} → 1",
        f"{before:.1f} → {after:.3f}",
        abs(before / d_k - 1) < 0.03 and abs(after - 1) < 0.03,
    )


def _score_variance(attend: Attention, d_k: int) -> float:
    """Of the scores inside an attention function, as its weights tell.

    The log of the ratio of two weights is the difference of two scores, which has twice their variance.
    """
    query, key, value = _draw(SAMPLES, keys=2, d_k=d_k)
    logs = attend(query, key, value).weights.squeeze(1).log()
    return (logs[:, 0] - logs[:, 1]).var().item() / 2


def _draw(queries: int, keys: int, d_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries with keys of their own, mean 0 and variance 1; in float64, for the smallest weights."""
    query, key = torch.randn(queries, 1, d_k), torch.randn(queries, keys, d_k)
    return query.double(), key.double(), torch.zeros(queries, keys, 1, dtype=torch.float64)


def _softmax_gradient(d_k: int) -> Claim:
    query, key, value = _draw(500, keys=64, d_k=d_k)

    def size_of_jacobian(attend: Attention) -> float:
        """The softmax's Jacobian is diag(p) − ppᵀ: it vanishes as p nears a single 1."""
        p = attend(query, key, value).weights.squeeze(1)
        jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
        return float(jacobian.flatten(1).norm(dim=-1).median())

    without, scaled = size_of_jacobian(dot_product_attention), size_of_jacobian(scaled_dot_product_attention)
    return Claim(
        "3.2.1",
        f"unscaled, the softmax loses its gradient (d_k = {d_k})",
        "extremely small",
        f"‖∂softmax‖ {without:.3f}, scaled {scaled:.3f}",
        without < scaled / 10,
    )


def _additive_needs_more(length: int = 256, width: int = 64) -> Claim:
    """Counted, not timed: a timing says more about the machine's other work than about attention."""

    def kept_for_backward(run: Callable[[], object]) -> int:
        sizes: list[int] = []

        def note(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            run()
        return sum(sizes)

    x = torch.randn(1, length, width, requires_grad=True)
    additive = AdditiveAttention(width, width, width)
    ratio = kept_for_backward(lambda: additive(x, x, x)) / kept_for_backward(
        lambda: scaled_dot_product_attention(x, x, x)
    )
    return Claim(
        "3.2.1",
        f"dot products need less space than additive (n = {length})",
        "more space-efficient",
        f"training keeps 1/{ratio:.0f} of the numbers",
        ratio > 10,
    )


def _heads_cost_the_same(d_model: int = 512, length: int = 64) -> Claim:
    def cost_of(heads: int) -> int:
        attention, x = FullSelfAttention(d_model, heads), torch.randn(1, length, d_model)
        # With a record, heads are computed as written: torch counts a fused kernel by rules of its own.
        return count_multiplications(lambda: attention(x, record=[]))

    ratio = cost_of(8) / cost_of(1)
    return Claim(
        "3.2.2",
        "8 heads of width 64 cost what one of 512 costs",
        "similar",
        f"{ratio:.3f} × as much",
        abs(ratio - 1) < 0.01,
    )
