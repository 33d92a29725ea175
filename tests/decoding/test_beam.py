import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Toy, exhaustive

from builders import random_tokens, small_model
from transduce.decoding.beam import beam_search
from transduce.decoding.constraints import Constraints
from transduce.decoding.penalties import paper_penalty, plain_penalty
from transduce.decoding.rules import min_length
from transduce.errors import TransduceError


@settings(max_examples=40)
@given(
    size=st.integers(4, 5),
    max_lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    alpha=st.floats(0, 1.5),
    plain=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_with_a_wide_beam_it_is_exhaustive_search(size, max_lengths, alpha, plain, seed):
    model, penalty = Toy(size, seed), (plain_penalty if plain else paper_penalty)(alpha)
    sources = torch.randint(3, size, (len(max_lengths), 3), generator=torch.Generator().manual_seed(seed))
    beam = (size - 3) ** max(max_lengths) + 1
    results = beam_search(model, sources, max_lengths, beam=beam, penalty=penalty)
    for source, max_length, hypotheses in zip(sources, max_lengths, results, strict=True):
        expected = exhaustive(model, source, max_length, penalty)[:beam]
        assert [each.tokens for each in hypotheses[:3]] == [tokens for _, tokens in expected[:3]]
        # The logarithm of a probability near 1 is a difference of logits, and as inexact as they are.
        scores = pytest.approx([score for score, _ in expected], rel=1e-4, abs=1e-6)
        assert [each.score for each in hypotheses] == scores
        for each in hypotheses:
            assert each.score == pytest.approx(
                sum(each.log_probabilities) / penalty(len(each.log_probabilities))
            )


@given(seed=st.integers(0, 10**6), beam=st.integers(1, 4))
def test_results_do_not_depend_on_the_batch(seed, beam):
    model = Toy(7, seed)
    sources = torch.randint(3, 7, (4, 3), generator=torch.Generator().manual_seed(seed))
    lengths = [2, 6, 4, 6]
    together = beam_search(model, sources, lengths, beam=beam)
    for row in range(4):
        (alone,) = beam_search(model, sources[row : row + 1], [lengths[row]], beam=beam)
        assert [each.tokens for each in alone] == [each.tokens for each in together[row]]


def greedy(model, source, max_length):
    """Choose the most likely token each time, and read the whole target again for the next."""
    target = torch.full((len(source), 1), model.vocabulary.bos)
    for _ in range(max_length):
        logits = model(source, target)[:, -1]
        logits[:, sorted({model.vocabulary.pad, model.vocabulary.bos} - {model.vocabulary.eos})] = -torch.inf
        target = torch.cat((target, logits.argmax(-1, keepdim=True)), dim=1)
    results = []
    for row in target[:, 1:].tolist():
        results.append(row[: row.index(model.vocabulary.eos)] if model.vocabulary.eos in row else row)
    return results


@given(
    seed=st.integers(0, 30),
    rows=st.integers(1, 5),
    eos=st.integers(1, 19),
    norm=st.sampled_from(["pre", "post"]),
)
@settings(max_examples=40)
def test_a_beam_of_one_is_greedy_decoding(seed, rows, eos, norm):
    model = small_model(seed=seed, norm=norm)
    model.vocabulary = model.vocabulary.model_copy(
        update={"eos": eos}
    )  # a likely token, so that sentences end
    source = random_tokens(rows, 6, seed=seed)
    results = beam_search(model, source, [8] * rows, beam=1)
    assert [hypotheses[0].tokens for hypotheses in results] == greedy(model, source, 8)


def test_no_sources():
    assert beam_search(small_model(), torch.empty(0, 3).long(), []) == []


def test_one_maximum_length_for_all_sources():
    model, source = Toy(7, 1), torch.tensor([[3, 4], [4, 3]])
    assert beam_search(model, source, 3) == beam_search(model, source, [3, 3])


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_a_wide_beam_without_penalty_is_never_worse_than_greedy_decoding(seed):
    """At least if greedy decoding ends within the maximum length."""
    model = Toy(6, seed, sharpness=3.0)
    source = torch.tensor([[3, 4]])
    narrow, wide = (
        beam_search(model, source, [8], beam=beam, penalty=plain_penalty(0.0))[0][0] for beam in (1, 216)
    )
    assert wide.score >= narrow.score - 1e-5


def test_penalties():
    assert paper_penalty(0.6)(1) == 1.0
    assert paper_penalty(0.6)(7) == pytest.approx(2**0.6)
    assert plain_penalty(1.0)(7) == 7.0
    assert math.isclose(plain_penalty(0.0)(9), 1.0)


@pytest.mark.parametrize("beam", [1, 3])
def test_logits_that_are_nan_are_an_error(beam):
    model = small_model()
    model.decoder.layers[0].feed_forward.inner.weight.data.fill_(1e38)
    with pytest.raises(TransduceError, match="NaN"):
        beam_search(model, random_tokens(2, 5), [6, 6], beam=beam)
    constraints = Constraints([[[7, 8]], []], model.vocabulary.eos)
    with pytest.raises(TransduceError, match="NaN"):
        beam_search(model, random_tokens(2, 5), [6, 6], beam=beam + 1, choose=constraints)


def test_a_search_ends_when_every_token_is_forbidden():
    def silence(scores, beams):
        if beams.length >= 2:
            scores.fill_(-torch.inf)

    model = Counting(8, 1)
    beam_search(model, torch.tensor([[3, 4, 5]]), [50], beam=3, rules=[silence, min_length(40, 2)])
    assert model.steps == 3


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), beam=st.integers(1, 4))
def test_a_search_that_need_not_be_exact_takes_fewer_steps(seed, beam):
    """Its results are no better than those of exact search; greedy decoding is the same."""
    sources = torch.randint(3, 8, (3, 3), generator=torch.Generator().manual_seed(seed))
    taken, results = [], []
    for exact in (True, False):
        model = Counting(8, seed)
        results.append(
            beam_search(model, sources, [9] * 3, beam=beam, penalty=plain_penalty(1.0), exact=exact)
        )
        taken.append(model.steps)
    for best, first in zip(*results, strict=True):
        assert first[0].score <= best[0].score + 1e-6
        assert beam > 1 or first == best
    assert taken[1] <= taken[0]


class Counting(Toy):
    """A toy that records the number of running targets of each step."""

    def __init__(self, *given):
        super().__init__(*given)
        self.running = []

    @property
    def steps(self):
        return len(self.running)

    def step(self, tokens, *others):
        self.running.append(len(tokens))
        return super().step(tokens, *others)


def test_finished_sentences_leave_the_batch():
    model = Counting(7, 0)
    sources = torch.randint(3, 7, (4, 3), generator=torch.Generator().manual_seed(0))
    beam_search(model, sources, [2, 6, 4, 6], beam=3)
    assert model.running[:2] == [4, 12]
    assert all(before >= after for before, after in pairwise(model.running[1:]))
    assert max(model.running[2:]) <= 9
    assert max(model.running[4:], default=0) <= 6


def test_exact_search_often_takes_more_steps():
    """It goes on while a running hypothesis could still become better than the finished ones."""
    differ = 0
    for seed in range(30):
        sources = torch.randint(3, 8, (2, 3), generator=torch.Generator().manual_seed(seed))
        model, other = Counting(8, seed), Counting(8, seed)
        beam_search(model, sources, [12, 12], beam=3, penalty=plain_penalty(1.0))
        beam_search(other, sources, [12, 12], beam=3, penalty=plain_penalty(1.0), exact=False)
        differ += other.steps < model.steps
    assert differ > 15


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 4),
    count=st.integers(1, 4),
    alpha=st.floats(0, 1.5),
    coverage=st.sampled_from([0.0, 0.5]),
)
def test_fewer_results_are_the_best_of_all(seed, beam, count, alpha, coverage):
    sources = torch.randint(3, 8, (3, 3), generator=torch.Generator().manual_seed(seed))
    options = {"beam": beam, "penalty": plain_penalty(alpha), "coverage": coverage}
    model, other = Counting(8, seed), Counting(8, seed)
    every = beam_search(model, sources, [9, 5, 9], **options)
    some = beam_search(other, sources, [9, 5, 9], count=count, **options)
    assert some == [results[:count] for results in every]
    assert other.steps <= model.steps


def test_fewer_results_take_fewer_steps():
    sooner = 0
    for seed in range(20):
        sources = torch.randint(3, 8, (2, 3), generator=torch.Generator().manual_seed(seed))
        model, other = Counting(8, seed), Counting(8, seed)
        beam_search(model, sources, [20, 20], beam=4)
        beam_search(other, sources, [20, 20], beam=4, count=1)
        sooner += other.steps < model.steps
    assert sooner > 10
