"""One line of the table of claims."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and the value measured here."""

    section: str
    claim: str
    paper: str
    measured: str
    holds: bool
    known_exception: str = ""  # the reason, if the claim is known not to hold

    @property
    def is_unexpected(self) -> bool:
        """Whether the claim fails, and not for a known reason."""
        return not self.holds and not self.known_exception
