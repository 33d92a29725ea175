"""Metrics that count errors line by line: exact match, PER and WER. The nearest allowed reference counts."""

from collections.abc import Callable, Sequence

import numpy as np

from transduce.data.normalization import normalize_text
from transduce.evaluation.bootstrap import Counts
from transduce.evaluation.edit_distance import edit_distance


def _exact(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    """Whether it is one of the references, out of 1."""
    return int(hypothesis in references), 1


def _token_errors(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    """Edits to the nearest reference, out of its tokens; of equally near ones, the longest."""
    tokens = hypothesis.split()
    found = [(edit_distance(tokens, wanted), len(wanted)) for wanted in map(str.split, references)]
    return min(found, key=lambda one: (one[0], -one[1]))


def _wrong(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    """Whether its tokens are those of no reference, out of 1."""
    tokens = hypothesis.split()
    return int(all(tokens != reference.split() for reference in references)), 1


RATES: dict[str, Callable[[str, Sequence[str]], tuple[int, int]]] = {
    "exact": _exact,
    "per": _token_errors,
    "wer": _wrong,
}


def count(
    metric: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> Counts:
    """Of each line, what the metric counts and out of how many: (lines, 2).

    Texts are compared after Unicode NFC and without white space at the ends, as a tokenizer reads them.
    """

    def read(text: str) -> str:
        return normalize_text(text.lower() if lowercase else text)

    counted = [
        RATES[metric](read(hypothesis), [read(reference) for reference in allowed])
        for hypothesis, allowed in zip(hypotheses, references, strict=True)
    ]
    return np.array(counted, dtype=np.int64).reshape(-1, 2)
