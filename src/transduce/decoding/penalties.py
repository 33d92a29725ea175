"""How hypotheses of different lengths are compared. A length counts ``eos``."""

from collections.abc import Callable

LengthPenalty = Callable[[int], float]


def paper_penalty(alpha: float = 0.6) -> LengthPenalty:
    """``((5 + |Y|) / 6)^α`` (section 6.1, after Wu et al., 2016): log-probabilities are divided by it."""
    return lambda length: float(((5 + length) / 6) ** alpha)


def plain_penalty(alpha: float = 1.0) -> LengthPenalty:
    """``|Y|^α``, as in the ``generate`` of Hugging Face."""
    return lambda length: float(length**alpha)
