"""How hypotheses are compared that differ in length, or in what they leave out. A length counts ``eos``."""

from collections.abc import Callable

from torch import Tensor

LengthPenalty = Callable[[int], float]


def paper_penalty(alpha: float = 0.6) -> LengthPenalty:
    """``((5 + |Y|) / 6)^α`` (section 6.1, after Wu et al., 2016): log-probabilities are divided by it."""
    return lambda length: float(((5 + length) / 6) ** alpha)


def plain_penalty(alpha: float = 1.0) -> LengthPenalty:
    """``|Y|^α``, as in the ``generate`` of Hugging Face."""
    return lambda length: float(length**alpha)


def coverage_penalty(attention: Tensor) -> float:
    """``Σ log min(attention, 1)`` over the source (Wu et al., 2016): below 0 where a token got less than 1.

    attention (source,) is what each source token got from all target tokens together.
    """
    return float(attention.clamp(1e-9, 1.0).log().sum())
