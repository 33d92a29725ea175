"""One line of the executable table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """What the paper says, and what was measured here."""

    section: str
    claim: str
    paper: str
    measured: str
    holds: bool
    known_exception: str = ""  # why it is known not to hold, if it is

    @property
    def surprising(self) -> bool:
        """It fails although nothing says that it should."""
        return not self.holds and not self.known_exception
