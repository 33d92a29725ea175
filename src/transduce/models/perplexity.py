"""Perplexity: the figure that a model's loss is usually quoted in."""

import math


def perplexity(loss: float) -> float:
    """Return e to the loss, in nats per token; losses above 100 count as 100, so that it stays finite."""
    return math.exp(min(loss, 100))
