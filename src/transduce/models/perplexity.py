"""Perplexity: the usual measure of a language model's loss."""

import math


def perplexity(loss: float) -> float:
    """Return ``e^loss`` for a loss in nats per token; above 100 the loss is cut off, to stay finite."""
    return math.exp(min(loss, 100))
