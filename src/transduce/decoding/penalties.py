"""Penalties that make hypotheses of different lengths and coverage comparable. Lengths include ``eos``."""

from collections.abc import Callable

from torch import Tensor

LengthPenalty = Callable[[int], float]


def paper_penalty(alpha: float = 0.6) -> LengthPenalty:
    """Return ``((5 + |Y|) / 6)^α`` as a function of the length; log-probabilities are divided by it.

    See section 6.1 of the paper, after Wu et al. (2016).
    """
    return lambda length: float(((5 + length) / 6) ** alpha)


def plain_penalty(alpha: float = 1.0) -> LengthPenalty:
    """Return ``|Y|^α`` as a function of the length, as in Hugging Face's ``generate``."""
    return lambda length: float(length**alpha)


def coverage_penalty(attention: Tensor) -> float:
    """Return ``Σ log min(attention, 1)`` over the source (Wu et al., 2016).

    attention (source,) is what each source token received from all target tokens together. A token that
    received less than 1 makes the penalty negative.
    """
    return float(attention.clamp(1e-9, 1.0).log().sum())
