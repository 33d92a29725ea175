"""Metrics that count line by line: exact match, and token and sentence error rates.

Of several references, the one with the fewest errors counts.
"""

from collections.abc import Callable, Sequence

import numpy as np

from transduce.data.normalization import DEFAULT, Normalization, normalize_text
from transduce.evaluation.bootstrap import LineCounts
from transduce.evaluation.edit_distance import edit_distance


def _exact_matches(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    """Return 1 if the hypothesis equals a reference, else 0; and 1, the number of lines."""
    return int(hypothesis in references), 1


def _token_errors(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    """Return the edits to the nearest reference (of several, the longest), and its number of tokens."""
    tokens = hypothesis.split()
    errors = [(edit_distance(tokens, reference), len(reference)) for reference in map(str.split, references)]
    return min(errors, key=lambda pair: (pair[0], -pair[1]))


def _wrong_lines(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    """Return 1 if the hypothesis' tokens equal those of no reference, else 0; and 1, the number of lines."""
    tokens = hypothesis.split()
    return int(all(tokens != reference.split() for reference in references)), 1


# Tokens are what spaces separate: PER and WER differ in name only, phones in one case and words in the other.
ERROR_RATES: dict[str, Callable[[str, Sequence[str]], tuple[int, int]]] = {
    "exact": _exact_matches,
    "per": _token_errors,
    "wer": _token_errors,
    "ser": _wrong_lines,
}


def count_errors(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    normalize: Normalization = DEFAULT,
) -> LineCounts:
    """Return the errors (for ``exact``, the matches) of each line, and out of how many: (lines, 2).

    Texts are compared after this Unicode normalization and without white space at their ends.
    """

    def normalized(text: str) -> str:
        return normalize_text(text.lower() if lowercase else text, normalize)

    counts = [
        ERROR_RATES[metric](normalized(hypothesis), [normalized(reference) for reference in accepted])
        for hypothesis, accepted in zip(hypotheses, references, strict=True)
    ]
    return np.array(counts, dtype=np.int64).reshape(-1, 2)
