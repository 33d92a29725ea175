"""What a beam search looked at, step by step."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Branch:
    """A token that was tried after those of its parent."""

    parent: int  # among the branches of the step before; −1 at the first step
    token: int
    log_probability: float  # of the token itself
    score: float  # the sum so far; of one that ended, over the length penalty
    fate: Literal["kept", "ended", "pruned"]
