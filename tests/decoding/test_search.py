"""The features of beam search, compared with exhaustive search."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Toy, exhaustive

from builders import random_tokens, small_model, small_rnn
from transduce.decoding.beam import beam_search
from transduce.decoding.candidates import ChooseDiverse
from transduce.decoding.constraints import Constraints, progress
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.penalties import coverage_penalty, paper_penalty
from transduce.decoding.rules import min_length, no_repeated_ngram, prefix
from transduce.errors import ConfigError, DataError

SOURCE = torch.tensor([[3, 4, 5]])
PENALTY = paper_penalty(0.6)
seeds = st.integers(0, 10**6)


def best(model, max_length=4, beam=200, **options):
    return beam_search(model, SOURCE, [max_length], beam=beam, penalty=PENALTY, **options)[0]


def everything(model, max_length=4):
    return exhaustive(model, SOURCE[0], max_length, PENALTY)


@settings(max_examples=25)
@given(seed=seeds, minimum=st.integers(0, 4))
def test_min_length(seed, minimum):
    model = Toy(5, seed)
    expected = [(score, target) for score, target in everything(model) if len(target) >= minimum]
    results = best(model, rules=[min_length(minimum, eos=2)])
    assert [each.tokens for each in results[:3]] == [target for _, target in expected[:3]]


@settings(max_examples=25)
@given(seed=seeds, size=st.integers(1, 3))
def test_no_ngram_is_repeated(seed, size):
    def repeats(target):
        grams = [tuple(target[at : at + size]) for at in range(len(target) - size + 1)]
        return len(set(grams)) < len(grams)

    model = Toy(5, seed)
    expected = [target for _, target in everything(model) if not repeats(target)]
    assert [each.tokens for each in best(model, rules=[no_repeated_ngram(size)])[:3]] == expected[:3]


@settings(max_examples=25)
@given(seed=seeds, begin=st.lists(st.integers(3, 4), max_size=3))
def test_a_target_begins_with_its_prefix(seed, begin):
    model = Toy(5, seed)
    expected = [(score, target) for score, target in everything(model) if target[: len(begin)] == begin]
    results = best(model, rules=[prefix([begin])])
    assert [each.tokens for each in results[:3]] == [target for _, target in expected[:3]]
    assert results[0].score == pytest.approx(expected[0][0], rel=1e-4)  # the forced tokens count, too


def test_each_sentence_has_its_own_prefix():
    sources = torch.tensor([[3, 4], [4, 3], [3, 3]])
    begins = [[4, 4], [], [3]]
    results = beam_search(Toy(6, 1), sources, [5, 5, 5], beam=2, rules=[prefix(begins)])
    for begin, hypotheses in zip(begins, results, strict=True):
        assert all(each.tokens[: len(begin)] == begin for each in hypotheses)


@settings(max_examples=25)
@given(seed=seeds, beta=st.floats(0.1, 3.0))
def test_coverage(seed, beta):
    """The score of every target, computed from its attention by hand."""
    model = Toy(5, seed)

    def covered(score, target):
        ended = len(target) + (len(target) < 4)
        got = sum(model.attention((1, *target[:at]), 3) for at in range(ended))
        return score + beta * coverage_penalty(got)

    expected = sorted(((covered(score, target), target) for score, target in everything(model)), reverse=True)
    results = best(model, coverage=beta)
    assert [each.tokens for each in results[:2]] == [target for _, target in expected[:2]]
    assert results[0].score == pytest.approx(expected[0][0], rel=1e-3)


def test_the_coverage_penalty_of_an_ensemble_of_different_models():
    vocabulary = small_model().vocabulary
    models = [small_model(), small_model(heads=2), small_rnn()]
    assert all(model.vocabulary == vocabulary for model in models)
    together = Ensemble(models)
    source = random_tokens(2, 5)
    results = beam_search(together, source, [6, 6], beam=3, coverage=0.5)
    for row, (best, *_) in enumerate(results):
        ended = len(best.log_probabilities)
        target = torch.tensor([[vocabulary.bos, *best.tokens]])[:, :ended]
        layers = together.attention(source[row : row + 1], target).encoder_decoder
        got = torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)[0].sum(dim=0)
        expected = sum(best.log_probabilities) / PENALTY(ended) + 0.5 * coverage_penalty(got)
        assert best.score == pytest.approx(expected, rel=1e-4)


def test_a_coverage_penalty_needs_attention():
    with pytest.raises(ConfigError):
        beam_search(small_rnn(attention="none"), SOURCE, [4], coverage=0.5)


def test_the_coverage_penalty():
    assert coverage_penalty(torch.tensor([1.0, 2.5])) == 0
    assert coverage_penalty(torch.tensor([0.5, 3.0])) == pytest.approx(math.log(0.5))


phrases = st.lists(st.lists(st.integers(3, 4), min_size=1, max_size=2), min_size=1, max_size=2)


@settings(max_examples=40)
@given(seed=seeds, phrases=phrases)
def test_the_best_target_with_all_phrases_is_found(seed, phrases):
    def has_all(target):
        return all(any(target[at : at + len(p)] == p for at in range(len(target))) for p in phrases)

    model = Toy(5, seed)
    expected = [target for _, target in everything(model) if has_all(target)]
    c = Constraints([phrases], eos=2)
    results = [each.tokens for each in best(model, choose=c, complete=c.complete)]
    assert all(has_all(target) for target in results)
    assert results[:2] == expected[:2]


@given(seed=seeds, beam=st.integers(2, 5))
def test_a_narrow_beam_finds_all_phrases(seed, beam):
    phrases = [[5, 6], [7]]
    sources = torch.tensor([[3, 4], [4, 4]])
    c = Constraints([phrases, []], eos=2)
    results = beam_search(Toy(12, seed), sources, [9, 9], beam=beam, choose=c, complete=c.complete)
    for each in results[0]:
        assert (5, 6) in zip(each.tokens, each.tokens[1:], strict=False)
        assert 7 in each.tokens
    (free,) = beam_search(Toy(12, seed), sources[1:], [9], beam=beam)
    assert [each.tokens for each in results[1]] == [each.tokens for each in free]


def test_progress():
    assert progress([], [[5, 6], [7]]) == (0, [5, 7])
    assert progress([5], [[5, 6], [7]]) == (1, [6, 7])
    assert progress([5, 6], [[5, 6], [7]]) == (2, [7])
    assert progress([5, 5], [[5, 6]]) == (1, [6])
    assert progress([5, 6, 4, 7], [[5, 6], [7]]) == (3, [])


@given(seed=seeds, groups=st.integers(2, 3))
def test_groups_without_diversity_find_the_same(seed, groups):
    sources = torch.tensor([[3, 4], [4, 4]]).repeat_interleave(groups, dim=0)
    model = Toy(9, seed)
    plain = beam_search(model, sources[::groups], [6, 6], beam=2)
    results = beam_search(model, sources, [6] * 2 * groups, beam=2, choose=ChooseDiverse(groups, 0.0))
    for number, hypotheses in enumerate(results):
        assert [each.tokens for each in hypotheses] == [each.tokens for each in plain[number // groups]]


def test_groups_with_diversity_begin_differently():
    sources = torch.tensor([[3, 4], [4, 4]]).repeat_interleave(3, dim=0)
    model = Toy(9, 3)
    results = beam_search(model, sources, [6] * 6, beam=1, choose=ChooseDiverse(3, 100.0))
    for sentence in range(2):
        group = [hypotheses[0] for hypotheses in results[3 * sentence : 3 * sentence + 3]]
        assert len({tuple(each.tokens[:1]) for each in group}) == 3
        (alone,) = beam_search(model, sources[3 * sentence][None], [6], beam=1)
        assert group[0].tokens == alone[0].tokens  # nothing is held against the first group
        for each in group:  # the cost of repeating another group is not part of the score
            steps = each.log_probabilities
            assert each.score == pytest.approx(sum(steps) / PENALTY(len(steps)))


@given(seed=seeds)
def test_an_ensemble_predicts_the_mean(seed):
    models = [Toy(6, seed), Toy(6, seed + 1)]
    tokens = torch.tensor([1])
    together = Ensemble(models)
    state = together.start(together.encode(SOURCE))
    results = together.step(tokens, state).softmax(-1)
    each = [model.step(tokens, model.start(model.encode(SOURCE))).softmax(-1) for model in models]
    torch.testing.assert_close(results, sum(each) / 2)


def test_an_ensemble_of_one_model_twice_finds_the_same():
    model = Toy(8, 5)
    assert [each.tokens for each in best(Ensemble([model, model]), beam=3)] == [
        each.tokens for each in best(model, beam=3)
    ]


def test_an_ensemble_needs_one_vocabulary():
    with pytest.raises(DataError, match="different vocabularies"):
        Ensemble([Toy(6, 1), Toy(7, 1)])


@given(seed=seeds, beam=st.integers(1, 4))
def test_a_trace_contains_the_way_to_the_best_target(seed, beam):
    trace = []
    (results,) = beam_search(Toy(8, seed), SOURCE, [6], beam=beam, penalty=PENALTY, trace=trace)
    targets = []
    for step, branches in enumerate(trace):
        assert sum(branch.fate == "kept" for branch in branches) <= beam
        for branch in branches:
            target, at, place = [branch], step, branch.parent
            while place >= 0:
                at -= 1
                target.insert(0, trace[at][place])
                assert target[0].fate == "kept"
                place = target[0].parent
            assert at == 0
            total = sum(each.log_probability for each in target)
            expected = total / PENALTY(len(target)) if branch.fate == "ended" else total
            assert branch.score == pytest.approx(expected, rel=1e-4)
            if branch.fate == "ended":
                targets.append((branch.score, [each.token for each in target[:-1]]))
    if targets and len(results[0].log_probabilities) > len(results[0].tokens):
        assert max(targets)[1] == results[0].tokens
