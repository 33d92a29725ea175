"""Beam search: the most likely targets, a few of them at a time (section 6.1: four, α = 0.6)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.config import Vocabulary
from transduce.decoding.candidates import Chooser, choose_best, choose_next
from transduce.decoding.hypotheses import Beams, Candidates, Hypothesis
from transduce.decoding.penalties import LengthPenalty, coverage_penalty, paper_penalty
from transduce.decoding.rules import Rule, silent_tokens, unspeakable
from transduce.decoding.trace import Trace, Tracer
from transduce.errors import ConfigError, TransduceError
from transduce.models.protocol import SequenceModel
from transduce.nn.kernels import can_choose


@torch.inference_mode()
def beam_search(
    model: SequenceModel[Any, Any],
    source: Tensor,
    max_lengths: Sequence[int],
    *,
    beam: int = 4,
    penalty: LengthPenalty | None = None,
    coverage: float = 0.0,
    rules: Sequence[Rule] = (),
    choose: Chooser = choose_best,
    complete: Callable[[int, list[int]], bool] = lambda sentence, tokens: True,
    exact: bool = True,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """For each source, (batch, source), the ``beam`` best targets that were found, best first.

    A target is at most as long as its sentence's ``max_lengths``, ``eos`` included; one that has not ended
    there is cut off. Padding and ``bos`` are never said, nor what the ``rules`` forbid. A sentence is done,
    and leaves the batch, when what is still under way cannot become better than what it has; with a beam as
    wide as the space, that is exhaustive search. If it need not be ``exact``, a sentence is done when it has
    ``beam`` targets. A beam of one is greedy search: it ends with the first ``eos``. Of targets that are cut
    off, those that are not ``complete`` count only if there are no others. ``trace`` receives every candidate
    of every step, if there is one source.
    """
    search = _Search(
        model.vocabulary, source, max_lengths, beam, penalty or paper_penalty(), coverage, complete, exact
    )
    tracer = Tracer(trace, search.penalty) if trace is not None else None
    forbid = (unspeakable(model.vocabulary), *rules)
    silent = torch.tensor(silent_tokens(model.vocabulary))
    state = model.start(model.encode(source), max(max_lengths, default=1))
    last = source.new_full((len(source),), model.vocabulary.bos)
    while search.beams.sentences:
        beams = search.beams
        seen: list[Tensor] | None = [] if coverage else None
        logits = model.step(last, state, seen).float().view(*beams.sums.shape, -1)
        if seen is not None and beams.coverage is not None:
            beams.coverage = beams.coverage + _mean_attention(seen).view_as(beams.coverage)
        wanted = min(2 * beam, logits[0].numel())  # each hypothesis ends in one way: enough of these do not
        if not rules and choose is choose_best and can_choose(logits, wanted):
            chosen = choose_next(logits, beams, wanted, silent)
        else:
            scores = logits.log_softmax(dim=-1)
            for rule in forbid:
                rule(scores, beams)
            chosen = choose(scores, beams, wanted)
        if chosen.sums.isnan().any():
            raise TransduceError(
                "the model finds no numbers for the next token",
                "its weights are damaged, or too large for this precision",
            )
        rows = search.extend(chosen, tracer)
        last = search.beams.tokens[:, :, -1].flatten()
        state.select(rows)
    return search.done


def _mean_attention(layers: list[Tensor]) -> Tensor:
    """Of layers with (targets, heads, source) each, as many heads as they have → (targets, source)."""
    if not layers:
        raise ConfigError("the model does not attend to its source", "leave out the coverage penalty")
    return torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)


class _Search:
    """What was found, and what is under way."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        source: Tensor,
        max_lengths: Sequence[int],
        beam: int,
        penalty: LengthPenalty,
        coverage: float,
        complete: Callable[[int, list[int]], bool],
        exact: bool,
    ) -> None:
        self.eos, self.max_lengths, self.beam = vocabulary.eos, max_lengths, beam
        self.penalty, self.coverage, self.complete, self.exact = penalty, coverage, complete, exact
        self.real = source != vocabulary.pad  # (sentences, source)
        self.done: list[list[Hypothesis]] = [[] for _ in source]
        self.beams = Beams.start(source, covering=coverage > 0)

    def extend(self, chosen: Candidates, tracer: Tracer | None) -> Tensor:
        """One token more. Ended hypotheses among the ``beam`` best are done.

        Gives the rows of the state from which those come that go on: (sentences, width).
        """
        width, ends = self.beams.sums.size(1), chosen.tokens == self.eos
        some_end = bool(ends.any())
        if some_end:
            ended = self.beams.grow(chosen)
            for row, rank in ends[:, : self.beam].nonzero().tolist():
                self._finish(ended, row, rank, ended=True)
        going_on = min(self.beam, chosen.tokens.size(1) - width)
        order = (ends.int().argsort(dim=1, stable=True) if some_end else chosen.ranks)[:, :going_on]
        if going_on == width > 1:
            order = order.gather(1, _settle(chosen.parents.gather(1, order)))
        if tracer:
            tracer.note(chosen, ends[:, : self.beam], order)
        chosen = chosen.take(order)
        grown, origin = self.beams.grow(chosen), chosen.rows * width + chosen.parents
        kept = self._kept(grown)
        if kept != list(range(len(kept))) or len(kept) < len(grown.sentences):
            rows = torch.tensor(kept, dtype=torch.long, device=order.device)
            grown, origin = grown.take(rows), origin[rows]
        self.beams = grown
        return origin

    def _kept(self, grown: Beams) -> list[int]:
        """The rows of sentences that are not done."""
        length, enough = grown.length, self.beam
        going = [
            length < self.max_lengths[sentence] and len(self.done[sentence]) < enough
            for sentence in grown.sentences
        ]
        if not all(going):
            highest = grown.sums.amax(dim=1).tolist()
            going = [sure or not self._is_done(grown, row, highest[row]) for row, sure in enumerate(going)]
        return _closed_up(going)

    def _is_done(self, grown: Beams, row: int, highest: float) -> bool:
        """Whether nothing better can come for a sentence that has ``beam`` targets, or is at its greatest
        length, where what is under way is taken as it is.
        """
        sentence, length = grown.sentences[row], grown.length
        done, most = self.done[sentence], self.max_lengths[sentence]
        if length >= most:
            self._cut_off(grown, row)
            return True
        # Sums only fall; the penalty of a length to come that flatters them most is at one of its ends.
        best = highest / max(self.penalty(length + 1), self.penalty(most))
        return self.beam == 1 or not self.exact or done[-1].score >= best

    def _cut_off(self, grown: Beams, row: int) -> None:
        sentence, ranks = grown.sentences[row], range(grown.sums.size(1))
        if self.beam == 1 and self.done[sentence]:
            return
        whole = [rank for rank in ranks if self.complete(sentence, grown.tokens[row, rank].tolist())]
        for rank in whole if whole or self.done[sentence] else ranks:
            self._finish(grown, row, rank, ended=False)

    def _finish(self, grown: Beams, row: int, rank: int, *, ended: bool) -> None:
        total = float(grown.sums[row, rank])
        if total == -torch.inf:
            return
        sentence = grown.sentences[row]
        done, score = self.done[sentence], total / self.penalty(grown.length)
        if grown.coverage is not None:
            got = grown.coverage[row, rank][self.real[sentence]]
            score += self.coverage * coverage_penalty(got)
        if len(done) == self.beam and score <= done[-1].score:
            return
        tokens, steps = grown.tokens[row, rank].tolist(), grown.steps[row, rank].tolist()
        done.append(Hypothesis(tokens[:-1] if ended else tokens, steps, score))
        done.sort(key=lambda one: -one.score)
        del done[self.beam :]


def _settle(parents: Tensor) -> Tensor:
    """An order of children, (sentences, width), in which each parent's first child has its parent's place.

    What a state remembers of a hypothesis then stays where it is, but for those that gave way to others.
    """
    width = parents.size(1)
    earlier = torch.ones(width, width, dtype=torch.bool, device=parents.device).tril(-1)
    later_child = ((parents[:, :, None] == parents[:, None, :]) & earlier).any(dim=2)
    taken = torch.zeros_like(later_child).scatter(1, parents, True)
    free = taken.int().argsort(dim=1, stable=True)  # free places first
    place = torch.where(later_child, free.gather(1, (later_child.cumsum(1) - 1).clamp(min=0)), parents)
    return torch.empty_like(place).scatter(
        1, place, torch.arange(width, device=place.device).expand_as(place)
    )


def _closed_up(going: list[bool]) -> list[int]:
    """The rows that go on, in an order in which few of them move: the last ones fill the gaps."""
    rows = [row for row, goes in enumerate(going) if goes]
    count = len(rows)
    tail = iter(row for row in rows if row >= count)
    return [row if going[row] else next(tail) for row in range(count)]
