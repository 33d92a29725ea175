"""Traces: every candidate of every step of a beam search, for inspection."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transduce.decoding.hypotheses import Candidates, Integers
from transduce.decoding.penalties import LengthPenalty

Fate = Literal["kept", "ended", "pruned"]


@dataclass(frozen=True)
class Branch:
    """A hypothesis that was extended by one token."""

    parent: int  # its place in the list of the previous step; −1 in the first step
    token: int
    log_probability: float  # of the token
    score: float  # the sum of log-probabilities; divided by the length penalty if the hypothesis ended
    fate: Fate


Trace: TypeAlias = list[list[Branch]]  # one list of branches per step


class Tracer:
    """Records the trace of the search for one sentence."""

    def __init__(self, trace: Trace, penalty: LengthPenalty) -> None:
        self.trace, self.penalty = trace, penalty
        self._places = [-1]  # of the running hypotheses, in the last list
        self._sums = [0.0]

    def record(self, chosen: Candidates, ends: npt.NDArray[np.bool_], order: Integers) -> None:
        """Record a step: all candidates, which of the first ones ended, and which were kept, (1, n) each."""
        if len(chosen.sums) != 1:
            raise ValueError(f"a trace needs a batch of one sentence, not of {len(chosen.sums)}")
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
