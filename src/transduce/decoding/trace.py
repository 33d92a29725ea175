"""What beam search considered, step by step, for people to look at."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transduce.decoding.hypotheses import Candidates, Integers
from transduce.decoding.penalties import LengthPenalty

Fate = Literal["kept", "ended", "pruned"]


@dataclass(frozen=True)
class Branch:
    """A hypothesis with its newest token."""

    parent: int  # its place in the list of the step before; −1 at the first step
    token: int
    log_probability: float  # of the token
    score: float  # the sum so far; divided by the length penalty if it ended
    fate: Fate


Trace: TypeAlias = list[list[Branch]]  # a list of branches a step


class Tracer:
    """Writes a trace of the search for one sentence."""

    def __init__(self, trace: Trace, penalty: LengthPenalty) -> None:
        self.trace, self.penalty = trace, penalty
        self._places = [-1]  # of the hypotheses under way, in the last list
        self._sums = [0.0]

    def note(self, chosen: Candidates, ends: npt.NDArray[np.bool_], order: Integers) -> None:
        """One step: all candidates, which of the first ones ended, and which go on: (1, n) each."""
        if len(chosen.sums) != 1:
            raise ValueError(f"a trace is of one sentence, not of {len(chosen.sums)}")
        sums, parents, tokens = (x[0].tolist() for x in (chosen.sums, chosen.parents, chosen.tokens))
        ended, kept = ends[0].tolist() + [False] * len(sums), order[0].tolist()
        length = len(self.trace) + 1
        branches = []
        for place, (total, parent, token) in enumerate(zip(sums, parents, tokens, strict=True)):
            fate: Fate = "ended" if ended[place] else "kept" if place in kept else "pruned"
            score = total / self.penalty(length) if fate == "ended" else total
            branches.append(Branch(self._places[parent], token, total - self._sums[parent], score, fate))
        self.trace.append(branches)
        self._places, self._sums = kept, [sums[place] for place in kept]
