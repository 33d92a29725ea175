"""Words that must appear in a target: glossary terms (after Post & Vilar, 2018)."""

from collections.abc import Sequence
from itertools import chain, zip_longest

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.candidates import choose_best
from transduce.decoding.hypotheses import Beams, Candidates

Phrase = Sequence[int]


def progress(said: Sequence[int], phrases: Sequence[Phrase]) -> tuple[int, list[int]]:
    """How many tokens of the phrases a target has, and which tokens would take it further.

    A phrase counts whole if it stands somewhere; of those that are missing, the one that is furthest on the
    way at the end of what was said counts as far as it is.
    """
    met, begun, further = 0, 0, []
    for phrase in phrases:
        size = len(phrase)
        if any(list(said[at : at + size]) == list(phrase) for at in range(len(said) - size + 1)):
            met += size
            continue
        ready = next(n for n in range(size - 1, -1, -1) if list(said[len(said) - n :]) == list(phrase[:n]))
        begun = max(begun, ready)
        further.append(phrase[ready])
    return met + begun, further


class Constraints:
    """Every target of a sentence contains that sentence's phrases, as tokens in a row.

    A choice (see `Chooser`): hypotheses are compared only with those that are as far with their phrases, and
    the places of the beam go round between them. None ends before it has all of them.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]], eos: int) -> None:
        self.phrases, self.eos = phrases, eos

    def complete(self, sentence: int, said: Sequence[int]) -> bool:
        """Whether a target of this sentence has all its phrases."""
        return not progress(said, self.phrases[sentence])[1]

    def __call__(self, scores: Tensor, beams: Beams, count: int) -> Candidates:
        """See `Chooser`."""
        said = beams.tokens.tolist()
        further = []
        for row, sentence in enumerate(beams.sentences):
            phrases = self.phrases[sentence]
            wanted = [progress(target, phrases)[1] for target in said[row]]
            for beam, tokens in enumerate(wanted):
                if tokens:
                    scores[row, beam, self.eos] = -torch.inf
            # Those that are furthest may be unlikely: what each would say by itself must be in the choice.
            own = scores[row].topk(min(2, scores.size(2)), dim=-1).indices.tolist()
            further.append(
                [(beam, token) for beam, tokens in enumerate(wanted) for token in {*tokens, *own[beam]}]
            )
        best = choose_best(scores, beams, count)
        sums, parents, tokens = zip(
            *(
                zip(*self._allot(row, scores, beams, best, said, further[row]), strict=True)
                for row in range(len(said))
            ),
            strict=True,
        )
        return Candidates(np.array(sums, dtype=np.float32), np.array(parents), np.array(tokens))

    def _allot(
        self,
        row: int,
        scores: Tensor,
        beams: Beams,
        best: Candidates,
        said: list[list[list[int]]],
        further: list[tuple[int, int]],
    ) -> list[tuple[float, int, int]]:
        """(sum, hypothesis, token), as many as in ``best``: the best of each degree of progress in turn."""
        phrases = self.phrases[beams.sentences[row]]
        ways = list(
            zip(best.sums[row].tolist(), best.parents[row].tolist(), best.tokens[row].tolist(), strict=True)
        )
        if not phrases:
            return ways
        also = [
            (float(np.float32(scores[row, beam, token].item()) + beams.sums[row, beam]), beam, token)
            for beam, token in further
        ]
        degrees: dict[int, list[tuple[float, int, int]]] = {}
        for total, beam, token in {*ways, *also}:
            if total != -torch.inf:  # what is no number must be seen
                degree, _ = progress([*said[row][beam], token], phrases)
                degrees.setdefault(degree, []).append((total, beam, token))
        queues = [sorted(degrees[degree], reverse=True) for degree in sorted(degrees, reverse=True)]
        chosen = [way for way in chain.from_iterable(zip_longest(*queues)) if way][: len(ways)]
        return chosen + [(-torch.inf, 0, 0)] * (len(ways) - len(chosen))
