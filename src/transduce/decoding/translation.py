"""What became of a line."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Candidate:
    """One way to say it."""

    text: str
    score: float
    tokens: list[str]
    log_probabilities: list[float]  # a token each, and the end
    ids: list[int] = field(default_factory=list)
    alignment: list[int] | None = None  # of each token, the source token it attends to most


@dataclass(frozen=True)
class Translation:
    """A line and what became of it, best first; of an empty line, nothing."""

    source: str
    candidates: list[Candidate]
    source_tokens: list[str] = field(default_factory=list)
    pieces: int = 1  # in which it was read
    read: str | None = None  # what was read of it, if it was cut

    @property
    def text(self) -> str:
        """The best one."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def line(self) -> str:
        """The best one as a line of a file."""
        return in_one_line(self.text)


def in_one_line(text: str) -> str:
    """Whatever would end a line within a text is a space."""
    return " ".join(text.splitlines())


def joined(line: str, parts: list[Translation]) -> Translation:
    """One translation of a line from those of its pieces: the best of each, then the second ones."""
    if len(parts) == 1:
        (part,) = parts
        return part if part.source == line else replace(part, source=line, read=part.source)
    most = min(len(part.candidates) for part in parts)
    shifts = [sum(len(part.source_tokens) for part in parts[:number]) for number in range(len(parts))]
    candidates = []
    for rank in range(most):
        chosen = [part.candidates[rank] for part in parts]
        aligned = all(one.alignment is not None for one in chosen)
        candidates.append(
            Candidate(
                " ".join(one.text for one in chosen),
                sum(one.score for one in chosen),
                [token for one in chosen for token in one.tokens],
                [step for one in chosen for step in one.log_probabilities],
                [token for one in chosen for token in one.ids],
                [
                    place + shift
                    for one, shift in zip(chosen, shifts, strict=True)
                    for place in one.alignment or []
                ]
                if aligned
                else None,
            )
        )
    return Translation(
        line, candidates, [token for part in parts for token in part.source_tokens], len(parts)
    )
