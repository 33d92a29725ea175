"""Beam search: the most likely targets, a few of them at a time (section 6.1: four, α = 0.6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.penalties import LengthPenalty, paper_penalty
from transduce.models.protocol import SequenceModel


@dataclass(frozen=True)
class Hypothesis:
    """A target that was found."""

    tokens: list[int]  # without ``eos``
    log_probabilities: list[float]  # a token each, and ``eos`` unless it was cut off
    score: float  # their sum over the length penalty


@dataclass
class _Beams:
    """The hypotheses that go on: ``width`` of them for each sentence that is not done."""

    sentences: list[int]  # which of the batch
    sums: Tensor  # (sentences, width), log-probabilities
    tokens: Tensor  # (sentences, width, length)
    steps: Tensor  # (sentences, width, length), the log-probability of each token

    def hypothesis(self, row: int, beam: int, penalty: LengthPenalty) -> Hypothesis:
        """One of them, ended here."""
        tokens, steps = self.tokens[row, beam].tolist(), self.steps[row, beam].tolist()
        return Hypothesis(tokens, steps, float(self.sums[row, beam]) / penalty(len(steps)))


@torch.inference_mode()
def beam_search(
    model: SequenceModel[Any, Any],
    source: Tensor,
    max_lengths: Sequence[int],
    *,
    beam: int = 4,
    penalty: LengthPenalty | None = None,
) -> list[list[Hypothesis]]:
    """For each source, (batch, source), the ``beam`` best targets that were found, best first.

    A target is at most as long as its sentence's ``max_lengths``, ``eos`` included; one that has not ended
    there is cut off. Padding and ``bos`` are never said. A sentence is done, and leaves the batch, when what
    is still under way cannot become better than what it has; with a beam as wide as the space, that is
    exhaustive search.
    """
    penalty = penalty or paper_penalty()
    special, device = model.vocabulary, source.device
    done: list[list[Hypothesis]] = [[] for _ in source]
    state = model.start(model.encode(source), max(max_lengths, default=1))
    unspeakable = sorted({special.pad, special.bos} - {special.eos})
    empty = torch.empty(len(source), 1, 0, device=device)
    beams = _Beams(list(range(len(source))), torch.zeros(len(source), 1, device=device), empty.long(), empty)
    last = torch.full((len(source),), special.bos, device=device)
    while beams.sentences:
        steps = model.step(last, state).float().log_softmax(dim=-1)
        steps[:, unspeakable] = -torch.inf
        beams, rows = _extend(beams, steps, special.eos, done, beam, penalty)
        going = [
            row
            for row, sentence in enumerate(beams.sentences)
            if not _is_done(beams, row, done[sentence], beam, penalty, max_lengths[sentence])
        ]
        keep = torch.tensor(going, dtype=torch.long, device=device)
        beams = _Beams(
            [beams.sentences[row] for row in going], beams.sums[keep], beams.tokens[keep], beams.steps[keep]
        )
        last = beams.tokens[:, :, -1].flatten()
        state.select(rows[keep].flatten())
    return done


def _extend(
    beams: _Beams, steps: Tensor, eos: int, done: list[list[Hypothesis]], beam: int, penalty: LengthPenalty
) -> tuple[_Beams, Tensor]:
    """One token more, given the log-probabilities ``steps`` of all, (rows, vocabulary).

    Ended hypotheses among the ``beam`` best go to ``done``. Gives those that go on, (sentences, ≤ beam), and
    the row of the state each comes from.
    """
    sentences, width = beams.sums.shape
    steps = steps.view(sentences, width, -1)
    vocabulary = steps.size(-1)
    candidates = (beams.sums[:, :, None] + steps).flatten(1)
    # Each of the hypotheses ends in one way: among twice as many candidates enough do not end.
    sums, places = candidates.topk(min(2 * beam, candidates.size(1)), dim=1)
    parents, tokens = places // vocabulary, places % vocabulary
    new = _grow(beams, parents, tokens, sums, steps.flatten(1).gather(1, places))
    ends = tokens == eos
    for row, rank in ends[:, :beam].nonzero().tolist():
        if sums[row, rank] > -torch.inf:
            found = new.hypothesis(row, rank, penalty)
            sentence = done[beams.sentences[row]]
            sentence.append(Hypothesis(found.tokens[:-1], found.log_probabilities, found.score))
            sentence.sort(key=lambda one: -one.score)
            del sentence[beam:]
    order = ends.int().argsort(dim=1, stable=True)[:, : min(beam, candidates.size(1) - width)]
    rows = torch.arange(sentences, device=sums.device)[:, None]
    kept = _Beams(beams.sentences, sums[rows, order], new.tokens[rows, order], new.steps[rows, order])
    return kept, rows * width + parents[rows, order]


def _grow(beams: _Beams, parents: Tensor, tokens: Tensor, sums: Tensor, steps: Tensor) -> _Beams:
    rows = torch.arange(len(parents), device=parents.device)[:, None]
    return _Beams(
        beams.sentences,
        sums,
        torch.cat([beams.tokens[rows, parents], tokens[:, :, None]], dim=2),
        torch.cat([beams.steps[rows, parents], steps[:, :, None]], dim=2),
    )


def _is_done(
    beams: _Beams, row: int, done: list[Hypothesis], beam: int, penalty: LengthPenalty, max_length: int
) -> bool:
    """Whether nothing better can come; at the greatest length, what is under way is taken as it is."""
    length = beams.tokens.size(2)
    if length >= max_length:
        real = (beams.sums[row] > -torch.inf).nonzero().squeeze(1).tolist()
        done += [beams.hypothesis(row, rank, penalty) for rank in real]
        done.sort(key=lambda one: -one.score)
        del done[beam:]
        return True
    # Sums only fall; the penalty of the length still to come that flatters them most is at one of its ends.
    best = float(beams.sums[row, 0]) / max(penalty(length + 1), penalty(max_length))
    return len(done) == beam and done[-1].score >= best
