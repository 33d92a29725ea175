"""The learning rate (section 5.3) and label smoothing (section 5.4)."""

import math
from collections.abc import Iterator

import torch

from transduce.paper.claim import Claim
from transduce.training.loss import label_smoothed_cross_entropy
from transduce.training.schedule import paper_schedule


def claims() -> Iterator[Claim]:
    """Check the schedule's shape and peak, and the minimum of the smoothed loss."""
    yield from _schedule()
    yield from _label_smoothing()


def _schedule(d_model: int = 512, warmup: int = 4000) -> Iterator[Claim]:
    rates = {step: paper_schedule(step, d_model=d_model, warmup=warmup) for step in range(1, 20_001)}
    peak = max(rates, key=rates.__getitem__)
    expected = (d_model * warmup) ** -0.5
    yield Claim(
        "5.3",
        f"the learning rate peaks after {warmup} warm-up steps",
        f"{expected:.2e} at step {warmup}",
        f"{rates[peak]:.2e} at step {peak}",
        peak == warmup and math.isclose(rates[peak], expected),
    )
    rising, falling = rates[2000] / rates[1000], rates[16_000] / rates[4000]
    yield Claim(
        "5.3",
        "learning rate after 2× the steps before, 4× after the peak",
        "× 2 and × ½",
        f"× {rising:.3f} and × {falling:.3f}",
        math.isclose(rising, 2) and math.isclose(falling, 0.5),
    )


def _label_smoothing(size: int = 100, smoothing: float = 0.1) -> Iterator[Claim]:
    smoothed = best_probability(size, smoothing)
    expected = 1 - smoothing + smoothing / size
    yield Claim(
        "5.4",
        f"the smoothed loss is minimal at p = 1 − ε + ε/V (ε = {smoothing})",
        f"{expected:.4f}",
        f"{smoothed:.4f}",
        abs(smoothed - expected) < 1e-3,
    )
    unsmoothed = best_probability(size, 0.0)
    yield Claim(
        "5.4",
        "label smoothing hurts perplexity",
        "worse",
        f"minimum {1 / smoothed:.2f}, without smoothing {1 / unsmoothed:.2f}",
        1 / smoothed > 1.05 * (1 / unsmoothed),
    )


def best_probability(size: int, smoothing: float) -> float:
    """Return the true token's probability at the minimum of the loss, found by minimizing it."""
    logits = torch.zeros(1, 1, size, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[size // 2]])
    optimizer = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = label_smoothed_cross_entropy(logits, target, pad=-1, smoothing=smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return logits.softmax(-1)[0, 0, size // 2].item()
