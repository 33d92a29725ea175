"""Beam search (section 6.1 of the paper: beam size 4, length penalty α = 0.6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.candidates import Chooser, choose_best, nan_logits
from transduce.decoding.hypotheses import Beams, Candidates, Hypothesis, Integers, without_eos
from transduce.decoding.penalties import LengthPenalty, coverage_penalty, paper_penalty
from transduce.decoding.rules import Rule, forbidden_tokens
from transduce.decoding.shortlist import outside_of
from transduce.decoding.trace import Trace, Tracer
from transduce.errors import ConfigError
from transduce.models.protocol import SearchingModel, SearchRequest, SequenceModel
from transduce.nn.factor_embeddings import tokens_of


@torch.inference_mode()
def beam_search(
    model: SequenceModel[Any, Any],
    source: Tensor,
    max_lengths: int | Sequence[int],
    *,
    beam: int = 4,
    count: int | None = None,
    penalty: LengthPenalty | None = None,
    coverage: float = 0.0,
    rules: Sequence[Rule] = (),
    choose: Chooser = choose_best,
    complete: Callable[[int, list[int]], bool] | None = None,
    exact: bool = True,
    prefix: Sequence[int] = (),
    shortlists: Sequence[Tensor] | None = None,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """Return the ``count`` best hypotheses of each source, best first.

    The search works on ids; `Translator` and `TextGenerator` work on text. It takes every model that has
    `encode`, `start` and `step`:

    >>> import torch, transduce
    >>> vocabulary = transduce.Vocabulary(source=20, target=20)
    >>> model = transduce.Transformer(transduce.preset("tiny").model, vocabulary).eval()
    >>> eos, pad = vocabulary.eos, vocabulary.pad
    >>> source = torch.tensor([[5, 6, 7, eos], [8, 9, eos, pad]])
    >>> hypotheses = transduce.beam_search(model, source, 10, beam=4, count=2)
    >>> [len(best) for best in hypotheses]
    [2, 2]
    >>> len(hypotheses[0][0].tokens) <= 10, hypotheses[0][0].score >= hypotheses[0][1].score
    (True, True)

    The source of a language model is a prompt, and its targets continue the prompt:

    >>> config = transduce.GPTConfig(layers=1, d_model=16, d_ff=32, heads=2, max_length=32)
    >>> gpt = transduce.GPT(config, vocabulary).eval()
    >>> prompt = torch.tensor([[vocabulary.bos, 5, 6]])
    >>> ((best,),) = transduce.beam_search(gpt, prompt, 10, beam=1)  # greedy decoding
    >>> len(best.tokens) <= 10
    True

    Args:
        model: A model of the decoding protocol, in evaluation mode.
        source: Ids (batch, source), padded at the end; with factors (batch, source, 1 + factors).
        max_lengths: Maximum length of the targets, or of the targets of each source, including ``eos``.
            A hypothesis that has not ended there is cut off.
        beam: Beam size; 1 is greedy decoding, which ends with the first ``eos``.
        count: Number of hypotheses to return; the beam size if not given.
        penalty: Length penalty; the paper's if not given.
        coverage: Weight of the coverage penalty.
        rules: Rules that forbid tokens. Padding and ``bos`` are always forbidden.
        choose: How the candidates of a step are chosen.
        complete: Whether a target of a sentence is complete. Incomplete hypotheses that are cut off are
            returned only if there are no others.
        exact: Search until no running hypothesis can become one of the ``count`` best; otherwise, end the
            search for a sentence when ``beam`` hypotheses have ended.
        prefix: Tokens that every target begins with, such as the token of its language. The decoder reads
            them before the search: they are no part of the hypotheses, their probabilities and their maximum
            length, but the length penalty counts them, as in Hugging Face's ``generate``.
        shortlists: For each source, the only tokens that its targets may contain, in ascending order; the
            probabilities of the others are 0.
        trace: Receives every candidate of every step, if there is one source.

    """
    limits = [max_lengths] * len(source) if isinstance(max_lengths, int) else max_lengths
    count = beam if count is None else min(count, beam)
    penalty = counting_prefix(len(prefix), penalty or paper_penalty())
    is_plain = choose is choose_best and not (rules or coverage or complete) and trace is None
    if is_plain and isinstance(model, SearchingModel):
        request = _request(model, limits, beam, count, penalty, exact, prefix, shortlists)
        found = _search_in_model(model, source, request)
        if found is not None:
            return found
    state = model.start(model.encode(source), len(prefix) + max(limits, default=1))
    last = read_prefix(model, state, prefix, source.new_full((len(source),), model.vocabulary.bos))
    covered = source.new_zeros(len(source), 1, source.size(1), dtype=torch.float) if coverage else None
    beams = Beams.start(range(len(source)), covered)
    is_token, eos = tokens_of(source) != model.vocabulary.pad, model.vocabulary.eos
    search = _Search(
        beams=beams,
        is_token=is_token,
        eos=eos,
        max_lengths=limits,
        beam=beam,
        count=count,
        penalty=penalty,
        coverage=coverage,
        complete=complete,
        exact=exact,
    )
    tracer = Tracer(trace, penalty) if trace is not None else None
    forbidden = source.new_tensor(forbidden_tokens(model.vocabulary))
    outside = None if shortlists is None else outside_of(shortlists, model.vocabulary.target, source.device)
    while beams.sentences:
        attention: list[Tensor] | None = [] if coverage else None
        logits = model.step(last, state, attention).float().view(*beams.sums.shape, -1)
        if outside is not None:
            logits.masked_fill_(outside[beams.sentences][:, None], -torch.inf)
        if attention is not None and beams.coverage is not None:
            beams.coverage = beams.coverage + _mean_attention(attention).view_as(beams.coverage)
        # A hypothesis has one candidate that ends it, so at least half of these candidates go on.
        number = min(2 * beam, logits.size(1) * logits.size(2))
        candidates = _choose(logits, beams, number, forbidden, rules, choose)
        origins = search.extend(candidates, tracer)
        last = beams.last(source.device)
        if origins is not None:
            state.select(torch.from_numpy(origins).to(source.device))
    return [hypotheses[:count] for hypotheses in search.finished]


def read_prefix(model: SequenceModel[Any, Any], state: Any, prefix: Sequence[int], first: Tensor) -> Tensor:
    """Let a new state read ``first``, (hypotheses,), and the prefix but for its last token; return that."""
    for token in prefix:
        model.step(first, state)
        first = torch.full_like(first, token)
    return first


def counting_prefix(before: int, penalty: LengthPenalty) -> LengthPenalty:
    """Return a penalty that counts as many tokens before each target."""
    return (lambda length: penalty(before + length)) if before else penalty


def _request(
    model: SequenceModel[Any, Any],
    max_lengths: Sequence[int],
    beam: int,
    count: int,
    penalty: LengthPenalty,
    exact: bool,
    prefix: Sequence[int],
    shortlists: Sequence[Tensor] | None,
) -> SearchRequest:
    limits = [max(1, limit) for limit in max_lengths]
    return SearchRequest(
        max_lengths=limits,
        penalties=[penalty(max(length, 1)) for length in range(max(limits, default=0) + 1)],
        beam=beam,
        count=count,
        exact=exact,
        bos=model.vocabulary.bos,
        eos=model.vocabulary.eos,
        forbidden=forbidden_tokens(model.vocabulary),
        prefix=prefix,
        shortlists=shortlists,
    )


def _search_in_model(
    model: SearchingModel, source: Tensor, request: SearchRequest
) -> list[list[Hypothesis]] | None:
    """Let the model run the search, if it can."""
    try:
        found = model.search(source, request)
    except ArithmeticError:
        raise nan_logits() from None
    if found is None:
        return None
    return [[Hypothesis.of(result, request.eos) for result in results] for results in found]


def _choose(
    logits: Tensor, beams: Beams, count: int, forbidden: Tensor, rules: Sequence[Rule], choose: Chooser
) -> Candidates:
    """Return the best candidates that no rule forbids."""
    scores = logits.log_softmax(dim=-1).index_fill_(2, forbidden, -torch.inf)
    for rule in rules:
        rule(scores, beams)
    candidates = choose(scores, beams, count)
    if np.isnan(candidates.sums).any():
        raise nan_logits()
    return candidates


def _mean_attention(layers: list[Tensor]) -> Tensor:
    """Average (targets, heads, source) over all heads and layers → (targets, source)."""
    if not layers:
        raise ConfigError(
            "the model has no attention to its source", "leave out coverage_penalty (--coverage-penalty)"
        )
    return torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)


@dataclass
class _Search:
    """The finished and the running hypotheses of a batch."""

    beams: Beams
    is_token: Tensor  # (sentences, source), False where there is padding
    eos: int
    max_lengths: Sequence[int]
    beam: int
    count: int
    penalty: LengthPenalty
    coverage: float
    complete: Callable[[int, list[int]], bool] | None
    exact: bool

    def __post_init__(self) -> None:
        self.finished: list[list[Hypothesis]] = [[] for _ in self.is_token]

    def extend(self, candidates: Candidates, tracer: Tracer | None) -> Integers | None:
        """Extend all hypotheses by one token; finish those among the ``beam`` best that end.

        Return the origins of the new hypotheses; see `Beams.grow`.
        """
        ends, width = candidates.tokens == self.eos, self.beams.width
        new_width = min(self.beam, ends.shape[1] - width)
        order = np.arange(new_width)[None].repeat(len(ends), axis=0)
        if ends.any():
            for row, rank in np.argwhere(ends[:, : self.beam]).tolist():
                self._finish(candidates, row, rank)
            order = ends.argsort(axis=1, kind="stable")[:, :new_width]
        if new_width == width > 1:
            order = order[candidates.rows, keep_places(candidates.parents[candidates.rows, order])]
        if tracer:
            tracer.record(candidates, ends[:, : self.beam], order)
        new = candidates.take(order)
        highest = new.sums.max(axis=1).tolist()
        is_running = [not self._has_ended(new, row, best) for row, best in enumerate(highest)]
        return self.beams.grow(new, close_gaps(is_running))

    def _has_ended(self, new: Candidates, row: int, highest: float) -> bool:
        """Return whether the search for a sentence has ended; cut hypotheses off at the maximum length."""
        sentence, length = self.beams.sentences[row], self.beams.length + 1
        finished, limit = self.finished[sentence], self.max_lengths[sentence]
        if length >= limit:
            self._cut_off(new, row)
            return True
        if highest == -torch.inf:  # every token is forbidden
            return True
        if len(finished) < self.count:
            return False
        if len(finished) == self.beam and (self.beam == 1 or not self.exact):
            return True
        # Sums only fall, and the penalty is monotonic: it is most favourable at one end of the lengths left.
        bound = highest / max(self.penalty(length + 1), self.penalty(limit))
        return finished[self.count - 1].score >= bound

    def _cut_off(self, new: Candidates, row: int) -> None:
        sentence, ranks = self.beams.sentences[row], range(new.sums.shape[1])
        if self.beam == 1 and self.finished[sentence]:
            return
        kept = [rank for rank in ranks if self._is_complete(new, row, rank)]
        for rank in kept if kept or self.finished[sentence] else ranks:
            self._finish(new, row, rank)

    def _is_complete(self, new: Candidates, row: int, rank: int) -> bool:
        if self.complete is None:
            return True
        return self.complete(self.beams.sentences[row], self.beams.history(new, row, rank)[0])

    def _finish(self, new: Candidates, row: int, rank: int) -> None:
        """Add a hypothesis to the finished ones, if it is among the ``beam`` best of them."""
        total = float(new.sums[row, rank])
        if total == -torch.inf:
            return
        beams, sentence = self.beams, self.beams.sentences[row]
        finished, score = self.finished[sentence], total / self.penalty(beams.length + 1)
        if beams.coverage is not None:
            received = beams.coverage[row, int(new.parents[row, rank])][self.is_token[sentence]]
            score += self.coverage * coverage_penalty(received)
        if len(finished) == self.beam and score <= finished[-1].score:
            return
        tokens, log_probabilities = beams.history(new, row, rank)
        finished.append(Hypothesis(without_eos(tokens, self.eos), log_probabilities, score))
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        del finished[self.beam :]


def keep_places(parents: Integers) -> Integers:
    """Return an order of children, (sentences, width), with each parent's first child in its parent's place.

    The keys and values of most hypotheses then stay where they are in memory.
    """
    sentences, width = parents.shape
    rows, children = np.arange(sentences)[:, None], np.arange(width)
    earlier = np.tri(width, k=-1, dtype=bool)
    is_later_child = ((parents[:, :, None] == parents[:, None, :]) & earlier).any(axis=2)
    is_taken = np.zeros_like(is_later_child)
    is_taken[rows, parents] = True
    free = is_taken.argsort(axis=1, kind="stable")  # free places first
    place = np.where(is_later_child, free[rows, (is_later_child.cumsum(axis=1) - 1).clip(min=0)], parents)
    order = np.empty_like(place)
    order[rows, place] = children
    return order


def close_gaps(is_running: list[bool]) -> list[int]:
    """Return the rows of running sentences, in an order in which the last ones fill the gaps."""
    rows = [row for row, running in enumerate(is_running) if running]
    count = len(rows)
    tail = iter(row for row in rows if row >= count)
    return [row if is_running[row] else next(tail) for row in range(count)]
