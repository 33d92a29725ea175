"""The learning rate (section 5.3) and label smoothing (section 5.4)."""

import math
from collections.abc import Iterator

import torch

from transduce.paper.claim import Claim
from transduce.training.loss import label_smoothed_cross_entropy
from transduce.training.schedule import paper_schedule


def claims() -> Iterator[Claim]:
    """The schedule's shape and peak; where the smoothed loss is lowest."""
    yield from _schedule()
    yield from _label_smoothing()


def _schedule(d_model: int = 512, warmup: int = 4000) -> Iterator[Claim]:
    rates = {step: paper_schedule(step, d_model=d_model, warmup=warmup) for step in range(1, 20_001)}
    peak = max(rates, key=rates.__getitem__)
    expected = (d_model * warmup) ** -0.5
    yield Claim(
        "5.3",
        f"the learning rate peaks at the end of warm-up ({warmup})",
        f"{expected:.2e} at {warmup}",
        f"{rates[peak]:.2e} at {peak}",
        peak == warmup and math.isclose(rates[peak], expected),
    )
    rising, falling = rates[2000] / rates[1000], rates[16_000] / rates[4000]
    yield Claim(
        "5.3",
        "2× the steps before, 4× after the peak",
        "× 2 and × ½",
        f"× {rising:.3f} and × {falling:.3f}",
        math.isclose(rising, 2) and math.isclose(falling, 0.5),
    )


def _label_smoothing(size: int = 100, smoothing: float = 0.1) -> Iterator[Claim]:
    found = best_probability(size, smoothing)
    expected = 1 - smoothing + smoothing / size
    yield Claim(
        "5.4",
        f"smoothed loss is lowest at p = 1 − ε + ε/V (ε = {smoothing})",
        f"{expected:.4f}",
        f"{found:.4f}",
        abs(found - expected) < 1e-3,
    )
    without = best_probability(size, 0.0)
    yield Claim(
        "5.4",
        "smoothing hurts perplexity: the model learns to be unsure",
        "hurts perplexity",
        f"at best {1 / found:.2f}, without it {1 / without:.2f}",
        1 / found > 1.05 * (1 / without),
    )


def best_probability(size: int, smoothing: float) -> float:
    """What the true token gets where the loss is lowest, found by minimising the loss itself."""
    logits = torch.zeros(1, 1, size, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[size // 2]])
    optimiser = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimiser.zero_grad()
        loss = label_smoothed_cross_entropy(logits, target, pad=-1, smoothing=smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return logits.softmax(-1)[0, 0, size // 2].item()
