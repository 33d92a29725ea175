"""Constrained beam search: phrases that a target must contain (after Post & Vilar, 2018)."""

from collections.abc import Sequence
from itertools import chain, islice, zip_longest

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.candidates import choose_best
from transduce.decoding.hypotheses import Beams, Candidates

Phrase = Sequence[int]


def progress(target: Sequence[int], phrases: Sequence[Phrase]) -> tuple[int, list[int]]:
    """Return how many tokens of the phrases a target contains, and which next tokens would add one.

    A phrase that the target contains counts in full. Of the other phrases, the one whose beginning is the
    longest end of the target counts as far as it goes.
    """
    met, begun, next_tokens = 0, 0, []
    for phrase in phrases:
        size = len(phrase)
        if any(list(target[at : at + size]) == list(phrase) for at in range(len(target) - size + 1)):
            met += size
            continue
        ready = next(
            n for n in range(size - 1, -1, -1) if list(target[len(target) - n :]) == list(phrase[:n])
        )
        begun = max(begun, ready)
        next_tokens.append(phrase[ready])
    return met + begun, next_tokens


class Constraints:
    """A `Chooser` that makes every target of a sentence contain the phrases of that sentence.

    Hypotheses compete only with those that contain as many tokens of their phrases, and these groups get the
    places of the beam in turn (dynamic beam allocation). No hypothesis ends before it contains all phrases.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]], eos: int) -> None:
        self.phrases, self.eos = phrases, eos

    def complete(self, sentence: int, target: Sequence[int]) -> bool:
        """Return whether a target contains all phrases of its sentence."""
        return not progress(target, self.phrases[sentence])[1]

    def __call__(self, scores: Tensor, beams: Beams, count: int) -> Candidates:
        """Choose ``count`` candidates of each sentence, in turn from the groups of equal progress."""
        targets = beams.tokens.tolist()
        extra = []
        for row, sentence in enumerate(beams.sentences):
            phrases = self.phrases[sentence]
            wanted = [progress(target, phrases)[1] for target in targets[row]]
            for beam, tokens in enumerate(wanted):
                if tokens:
                    scores[row, beam, self.eos] = -torch.inf
            # Hypotheses with much progress may be unlikely: their own best tokens must be candidates, too.
            own = scores[row].topk(min(2, scores.size(2)), dim=-1).indices.tolist()
            extra.append(
                [(beam, token) for beam, tokens in enumerate(wanted) for token in {*tokens, *own[beam]}]
            )
        best = choose_best(scores, beams, count)
        sums, parents, tokens = zip(
            *(
                zip(*self._allot(row, scores, beams, best, targets[row], extra[row]), strict=True)
                for row in range(len(targets))
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
        targets: list[list[int]],
        extra: list[tuple[int, int]],
    ) -> list[tuple[float, int, int]]:
        """Return (sum, hypothesis, token) of as many candidates as in ``best``, from the groups in turn."""
        phrases = self.phrases[beams.sentences[row]]
        candidates = list(
            zip(best.sums[row].tolist(), best.parents[row].tolist(), best.tokens[row].tolist(), strict=True)
        )
        if not phrases:
            return candidates
        others = [
            (float(np.float32(scores[row, beam, token].item()) + beams.sums[row, beam]), beam, token)
            for beam, token in extra
        ]
        degrees: dict[int, list[tuple[float, int, int]]] = {}
        for total, beam, token in {*candidates, *others}:
            if total != -torch.inf:  # NaN stays, so that beam search sees and reports it
                degree, _ = progress([*targets[beam], token], phrases)
                degrees.setdefault(degree, []).append((total, beam, token))
        queues = [sorted(degrees[degree], reverse=True) for degree in sorted(degrees, reverse=True)]
        in_turn = (each for each in chain.from_iterable(zip_longest(*queues)) if each)
        chosen = list(islice(in_turn, len(candidates)))
        return chosen + [(-torch.inf, 0, 0)] * (len(candidates) - len(chosen))
