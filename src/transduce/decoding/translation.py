"""Translations: the results of a search as text."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Candidate:
    """One possible translation."""

    text: str
    score: float
    tokens: list[str]
    log_probabilities: list[float]  # one per token, and that of the end unless the target was cut off
    ids: list[int] = field(default_factory=list)
    alignment: list[int] | None = None  # for each token, the source token that fits it best: see `align`

    @property
    def confidence(self) -> float:
        """The mean probability of a token: the geometric mean, from 0 to 1."""
        if not self.log_probabilities:
            return 0.0
        return math.exp(min(0.0, sum(self.log_probabilities) / len(self.log_probabilities)))


class Finding(NamedTuple):
    """Something that is wrong with a translation; see `transduce.decoding.guard`."""

    kind: Literal["repetition", "copy", "length"]
    message: str  # continues "the translation of this line"


@dataclass(frozen=True)
class Translation:
    """A line and its translations, best first. A blank line has none."""

    source: str
    candidates: list[Candidate]
    source_tokens: list[str] = field(default_factory=list)
    pieces: int = 1  # pieces into which the line was split
    truncated_source: str | None = None  # what was translated, if the line was truncated
    findings: list[Finding] = field(default_factory=list)  # of the guard, if there is one

    @property
    def text(self) -> str:
        """The best translation; empty if there is none."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def line(self) -> str:
        """The best translation as one line of a file."""
        return in_one_line(self.text)

    def __str__(self) -> str:
        return self.text


def in_one_line(text: str) -> str:
    """Replace line breaks within a text by spaces, so that it is one line of a file."""
    return " ".join(text.splitlines())


def join_pieces(line: str, parts: list[Translation]) -> Translation:
    """Combine the translations of a line's pieces: the best of each piece, then the second best."""
    if len(parts) == 1:
        (part,) = parts
        return part if part.source == line else replace(part, source=line, truncated_source=part.source)
    shifts = [sum(len(part.source_tokens) for part in parts[:index]) for index in range(len(parts))]
    candidates = [
        _join([part.candidates[rank] for part in parts], shifts)
        for rank in range(min(len(part.candidates) for part in parts))
    ]
    return Translation(
        line,
        candidates,
        [token for part in parts for token in part.source_tokens],
        len(parts),
        findings=[finding for part in parts for finding in part.findings],
    )


def _join(candidates: list[Candidate], shifts: list[int]) -> Candidate:
    """Concatenate candidates; ``shifts`` are the source tokens before each."""
    alignment = [
        place + shift
        for candidate, shift in zip(candidates, shifts, strict=True)
        for place in candidate.alignment or []
    ]
    is_aligned = all(candidate.alignment is not None for candidate in candidates)
    return Candidate(
        " ".join(candidate.text for candidate in candidates),
        sum(candidate.score for candidate in candidates),
        [token for candidate in candidates for token in candidate.tokens],
        [value for candidate in candidates for value in candidate.log_probabilities],
        [token for candidate in candidates for token in candidate.ids],
        alignment if is_aligned else None,
    )
