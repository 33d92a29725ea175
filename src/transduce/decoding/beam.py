"""Beam search: the most likely targets, a few of them at a time (section 6.1: four, α = 0.6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.candidates import Chooser, choose_best, no_numbers
from transduce.decoding.hypotheses import Beams, Candidates, Hypothesis, Integers
from transduce.decoding.penalties import LengthPenalty, coverage_penalty, paper_penalty
from transduce.decoding.rules import Rule, silent_tokens
from transduce.decoding.trace import Trace, Tracer
from transduce.errors import ConfigError
from transduce.models.protocol import SearchingModel, SearchRequest, SequenceModel


@torch.inference_mode()
def beam_search(
    model: SequenceModel[Any, Any],
    source: Tensor,
    max_lengths: Sequence[int],
    *,
    beam: int = 4,
    count: int | None = None,
    penalty: LengthPenalty | None = None,
    coverage: float = 0.0,
    rules: Sequence[Rule] = (),
    choose: Chooser = choose_best,
    complete: Callable[[int, list[int]], bool] | None = None,
    exact: bool = True,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """For each source, (batch, source), the ``count`` best targets (or ``beam``) that were found, best first.

    A target is at most as long as its sentence's ``max_lengths``, ``eos`` included; one that has not ended
    there is cut off. Padding and ``bos`` are never said, nor what the ``rules`` forbid. A sentence is done,
    and leaves the batch, when it has ``count`` targets that nothing still under way can surpass; with a beam
    as wide as the space, that is exhaustive search. If it need not be ``exact``, a sentence is also done when
    it has ``beam`` targets. A beam of one is greedy search: it ends with the first ``eos``. Of targets that
    are cut off, those that are not ``complete`` count only if there are no others. ``trace`` receives every
    candidate of every step, if there is one source.
    """
    count = beam if count is None else min(count, beam)
    covered = source.new_zeros(len(source), 1, source.size(1), dtype=torch.float) if coverage else None
    beams = Beams.start(range(len(source)), covered)
    penalty = penalty or paper_penalty()
    tracer = Tracer(trace, penalty) if trace is not None else None
    real, eos = source != model.vocabulary.pad, model.vocabulary.eos
    search = _Search(beams, real, eos, max_lengths, beam, count, penalty, coverage, complete, exact)
    state = model.start(model.encode(source), max(max_lengths, default=1))
    if choose is choose_best and not (rules or coverage or complete or tracer):
        found = _search_by_model(model, state, search)
        if found is not None:
            return found
    last = source.new_full((len(source),), model.vocabulary.bos)
    silent = source.new_tensor(silent_tokens(model.vocabulary))
    while beams.sentences:
        seen: list[Tensor] | None = [] if coverage else None
        logits = model.step(last, state, seen).float().view(*beams.sums.shape, -1)
        if seen is not None and beams.coverage is not None:
            beams.coverage = beams.coverage + _mean_attention(seen).view_as(beams.coverage)
        # Each hypothesis ends in one way: enough of these do not.
        wanted = min(2 * beam, logits.size(1) * logits.size(2))
        chosen = _choose(logits, beams, wanted, silent, rules, choose)
        origins = search.extend(chosen, tracer)
        last = beams.last(source.device)
        if origins is not None:
            state.select(torch.from_numpy(origins).to(source.device))
    return [found[:count] for found in search.done]


def _search_by_model(
    model: SequenceModel[Any, Any], state: Any, search: "_Search"
) -> list[list[Hypothesis]] | None:
    """If it can, and nobody else has a say."""
    if not isinstance(model, SearchingModel):
        return None
    limits, vocabulary = search.max_lengths, model.vocabulary
    request = SearchRequest(
        limits,
        [search.penalty(max(length, 1)) for length in range(max(limits, default=0) + 1)],
        *(search.beam, search.count, search.exact),
        *(vocabulary.bos, vocabulary.eos, silent_tokens(vocabulary)),
    )
    try:
        found = model.search(state, request)
    except ArithmeticError:
        raise no_numbers() from None
    return (
        None
        if found is None
        else [
            [search.hypothesis(one.tokens, one.log_probabilities, one.score) for one in results]
            for results in found
        ]
    )


def _choose(
    logits: Tensor, beams: Beams, count: int, silent: Tensor, rules: Sequence[Rule], choose: Chooser
) -> Candidates:
    """Return the best continuations of all hypotheses that no rule forbids."""
    scores = logits.log_softmax(dim=-1).index_fill_(2, silent, -torch.inf)
    for rule in rules:
        rule(scores, beams)
    chosen = choose(scores, beams, count)
    if np.isnan(chosen.sums).any():
        raise no_numbers()
    return chosen


def _mean_attention(layers: list[Tensor]) -> Tensor:
    """Of layers with (targets, heads, source) each, as many heads as they have → (targets, source)."""
    if not layers:
        raise ConfigError("the model does not attend to its source", "leave out the coverage penalty")
    return torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)


@dataclass
class _Search:
    """What was found, and what is under way."""

    beams: Beams
    real: Tensor  # (sentences, source), where there is a token
    eos: int
    max_lengths: Sequence[int]
    beam: int
    count: int
    penalty: LengthPenalty
    coverage: float
    complete: Callable[[int, list[int]], bool] | None
    exact: bool

    def __post_init__(self) -> None:
        self.done: list[list[Hypothesis]] = [[] for _ in self.real]

    def extend(self, chosen: Candidates, tracer: Tracer | None) -> Integers | None:
        """One token more. Ended hypotheses among the ``beam`` best are done; see `Beams.grow`."""
        ends, width = chosen.tokens == self.eos, self.beams.width
        going_on = min(self.beam, ends.shape[1] - width)
        order = np.arange(going_on)[None].repeat(len(ends), axis=0)
        if ends.any():
            for row, rank in np.argwhere(ends[:, : self.beam]).tolist():
                self._finish(chosen, row, rank)
            order = ends.argsort(axis=1, kind="stable")[:, :going_on]
        if going_on == width > 1:
            order = order[chosen.rows, _settle(chosen.parents[chosen.rows, order])]
        if tracer:
            tracer.note(chosen, ends[:, : self.beam], order)
        new = chosen.take(order)
        highest = new.sums.max(axis=1).tolist()
        going = [not self._is_done(new, row, best) for row, best in enumerate(highest)]
        return self.beams.grow(new, _closed_up(going))

    def _is_done(self, new: Candidates, row: int, highest: float) -> bool:
        """Whether a sentence has what is wanted, or is at its greatest length, where what is under way is
        taken as it is.
        """
        sentence, length = self.beams.sentences[row], self.beams.length + 1
        done, most = self.done[sentence], self.max_lengths[sentence]
        if length >= most:
            self._cut_off(new, row)
            return True
        if highest == -torch.inf:  # nothing is left to say
            return True
        if len(done) < self.count:
            return False
        if len(done) == self.beam and (self.beam == 1 or not self.exact):
            return True
        # Sums only fall; the penalty of a length to come that flatters them most is at one of its ends.
        best = highest / max(self.penalty(length + 1), self.penalty(most))
        return done[self.count - 1].score >= best

    def _cut_off(self, new: Candidates, row: int) -> None:
        sentence, ranks = self.beams.sentences[row], range(new.sums.shape[1])
        if self.beam == 1 and self.done[sentence]:
            return
        complete = self.complete or (lambda sentence, tokens: True)
        whole = [rank for rank in ranks if complete(sentence, self.beams.spoken(new, row, rank)[0])]
        for rank in whole if whole or self.done[sentence] else ranks:
            self._finish(new, row, rank)

    def _finish(self, new: Candidates, row: int, rank: int) -> None:
        total = float(new.sums[row, rank])
        if total == -torch.inf:
            return
        beams, sentence = self.beams, self.beams.sentences[row]
        done, score = self.done[sentence], total / self.penalty(beams.length + 1)
        if beams.coverage is not None:
            got = beams.coverage[row, int(new.parents[row, rank])][self.real[sentence]]
            score += self.coverage * coverage_penalty(got)
        if len(done) == self.beam and score <= done[-1].score:
            return
        done.append(self.hypothesis(*beams.spoken(new, row, rank), score))
        done.sort(key=lambda one: -one.score)
        del done[self.beam :]

    def hypothesis(self, tokens: list[int], log_probabilities: list[float], score: float) -> Hypothesis:
        """Without ``eos``, if it was said."""
        said = tokens[:-1] if tokens[-1] == self.eos else tokens
        return Hypothesis(said, log_probabilities, score)


def _settle(parents: Integers) -> Integers:
    """An order of children, (sentences, width), in which each parent's first child has its parent's place.

    What a state remembers of a hypothesis then stays where it is, but for those that gave way to others.
    """
    sentences, width = parents.shape
    rows, children = np.arange(sentences)[:, None], np.arange(width)
    earlier = np.tri(width, k=-1, dtype=bool)
    later_child = ((parents[:, :, None] == parents[:, None, :]) & earlier).any(axis=2)
    taken = np.zeros_like(later_child)
    taken[rows, parents] = True
    free = taken.argsort(axis=1, kind="stable")  # free places first
    place = np.where(later_child, free[rows, (later_child.cumsum(axis=1) - 1).clip(min=0)], parents)
    order = np.empty_like(place)
    order[rows, place] = children
    return order


def _closed_up(going: list[bool]) -> list[int]:
    """The rows that go on, in an order in which few of them move: the last ones fill the gaps."""
    rows = [row for row, goes in enumerate(going) if goes]
    count = len(rows)
    tail = iter(row for row in rows if row >= count)
    return [row if going[row] else next(tail) for row in range(count)]
