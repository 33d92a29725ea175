"""What may be asked of a search, held against trying everything."""

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
@given(seed=seeds, least=st.integers(0, 4))
def test_min_length(seed, least):
    model = Toy(5, seed)
    expected = [(score, said) for score, said in everything(model) if len(said) >= least]
    found = best(model, rules=[min_length(least, eos=2)])
    assert [one.tokens for one in found[:3]] == [said for _, said in expected[:3]]


@settings(max_examples=25)
@given(seed=seeds, size=st.integers(1, 3))
def test_no_ngram_is_said_twice(seed, size):
    def repeats(said):
        grams = [tuple(said[at : at + size]) for at in range(len(said) - size + 1)]
        return len(set(grams)) < len(grams)

    model = Toy(5, seed)
    expected = [said for _, said in everything(model) if not repeats(said)]
    assert [one.tokens for one in best(model, rules=[no_repeated_ngram(size)])[:3]] == expected[:3]


@settings(max_examples=25)
@given(seed=seeds, begin=st.lists(st.integers(3, 4), max_size=3))
def test_a_target_begins_as_told(seed, begin):
    model = Toy(5, seed)
    expected = [(score, said) for score, said in everything(model) if said[: len(begin)] == begin]
    found = best(model, rules=[prefix([begin])])
    assert [one.tokens for one in found[:3]] == [said for _, said in expected[:3]]
    assert found[0].score == pytest.approx(expected[0][0], rel=1e-4)  # what was forced counts too


def test_each_sentence_has_its_own_prefix():
    sources = torch.tensor([[3, 4], [4, 3], [3, 3]])
    begins = [[4, 4], [], [3]]
    found = beam_search(Toy(6, 1), sources, [5, 5, 5], beam=2, rules=[prefix(begins)])
    for begin, hypotheses in zip(begins, found, strict=True):
        assert all(one.tokens[: len(begin)] == begin for one in hypotheses)


@settings(max_examples=25)
@given(seed=seeds, beta=st.floats(0.1, 3.0))
def test_coverage(seed, beta):
    """The score of every target, computed from its attention by hand."""
    model = Toy(5, seed)

    def covered(score, said):
        ended = len(said) + (len(said) < 4)
        got = sum(model.attention((1, *said[:at]), 3) for at in range(ended))
        return score + beta * coverage_penalty(got)

    expected = sorted(((covered(score, said), said) for score, said in everything(model)), reverse=True)
    found = best(model, coverage=beta)
    assert [one.tokens for one in found[:2]] == [said for _, said in expected[:2]]
    assert found[0].score == pytest.approx(expected[0][0], rel=1e-3)


def test_models_with_different_heads_cover_together():
    vocabulary = small_model().vocabulary
    models = [small_model(), small_model(heads=2), small_rnn()]
    assert all(model.vocabulary == vocabulary for model in models)
    together = Ensemble(models)
    source = random_tokens(2, 5)
    found = beam_search(together, source, [6, 6], beam=3, coverage=0.5)
    for row, (best, *_) in enumerate(found):
        ended = len(best.log_probabilities)
        target = torch.tensor([[vocabulary.bos, *best.tokens]])[:, :ended]
        layers = together.attention(source[row : row + 1], target).encoder_decoder
        got = torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)[0].sum(dim=0)
        expected = sum(best.log_probabilities) / PENALTY(ended) + 0.5 * coverage_penalty(got)
        assert best.score == pytest.approx(expected, rel=1e-4)


def test_nothing_is_covered_without_attention():
    with pytest.raises(ConfigError, match="does not attend to its source; leave out the coverage penalty"):
        beam_search(small_rnn(attention="none"), SOURCE, [4], coverage=0.5)


def test_the_coverage_penalty():
    assert coverage_penalty(torch.tensor([1.0, 2.5])) == 0
    assert coverage_penalty(torch.tensor([0.5, 3.0])) == pytest.approx(math.log(0.5))


phrases = st.lists(st.lists(st.integers(3, 4), min_size=1, max_size=2), min_size=1, max_size=2)


@settings(max_examples=40)
@given(seed=seeds, phrases=phrases)
def test_all_phrases_appear_in_the_best_target_that_has_them(seed, phrases):
    def has_all(said):
        return all(any(said[at : at + len(p)] == p for at in range(len(said))) for p in phrases)

    model = Toy(5, seed)
    expected = [said for _, said in everything(model) if has_all(said)]
    c = Constraints([phrases], eos=2)
    found = [one.tokens for one in best(model, choose=c, complete=c.complete)]
    assert all(has_all(said) for said in found)
    assert found[:2] == expected[:2]


@given(seed=seeds, beam=st.integers(2, 5))
def test_a_narrow_beam_finds_all_phrases_too(seed, beam):
    phrases = [[5, 6], [7]]
    sources = torch.tensor([[3, 4], [4, 4]])
    c = Constraints([phrases, []], eos=2)
    found = beam_search(Toy(12, seed), sources, [9, 9], beam=beam, choose=c, complete=c.complete)
    for one in found[0]:
        assert (5, 6) in zip(one.tokens, one.tokens[1:], strict=False)
        assert 7 in one.tokens
    (free,) = beam_search(Toy(12, seed), sources[1:], [9], beam=beam)
    assert [one.tokens for one in found[1]] == [one.tokens for one in free]


def test_progress():
    assert progress([], [[5, 6], [7]]) == (0, [5, 7])
    assert progress([5], [[5, 6], [7]]) == (1, [6, 7])
    assert progress([5, 6], [[5, 6], [7]]) == (2, [7])
    assert progress([5, 5], [[5, 6]]) == (1, [6])
    assert progress([5, 6, 4, 7], [[5, 6], [7]]) == (3, [])


@given(seed=seeds, groups=st.integers(2, 3))
def test_groups_that_do_not_mind_each_other_find_the_same(seed, groups):
    sources = torch.tensor([[3, 4], [4, 4]]).repeat_interleave(groups, dim=0)
    model = Toy(9, seed)
    plain = beam_search(model, sources[::groups], [6, 6], beam=2)
    found = beam_search(model, sources, [6] * 2 * groups, beam=2, choose=ChooseDiverse(groups, 0.0))
    for number, hypotheses in enumerate(found):
        assert [one.tokens for one in hypotheses] == [one.tokens for one in plain[number // groups]]


def test_groups_that_mind_each_other_begin_differently():
    sources = torch.tensor([[3, 4], [4, 4]]).repeat_interleave(3, dim=0)
    model = Toy(9, 3)
    found = beam_search(model, sources, [6] * 6, beam=1, choose=ChooseDiverse(3, 100.0))
    for sentence in range(2):
        group = [hypotheses[0] for hypotheses in found[3 * sentence : 3 * sentence + 3]]
        assert len({tuple(one.tokens[:1]) for one in group}) == 3
        (alone,) = beam_search(model, sources[3 * sentence][None], [6], beam=1)
        assert group[0].tokens == alone[0].tokens  # the first one minds nobody
        for one in group:  # what the others cost it is not in its score
            steps = one.log_probabilities
            assert one.score == pytest.approx(sum(steps) / PENALTY(len(steps)))


@given(seed=seeds)
def test_an_ensemble_says_the_mean(seed):
    models = [Toy(6, seed), Toy(6, seed + 1)]
    tokens = torch.tensor([1])
    together = Ensemble(models)
    state = together.start(together.encode(SOURCE))
    found = together.step(tokens, state).softmax(-1)
    each = [model.step(tokens, model.start(model.encode(SOURCE))).softmax(-1) for model in models]
    torch.testing.assert_close(found, sum(each) / 2)


def test_a_model_with_itself_finds_what_it_finds_alone():
    model = Toy(8, 5)
    assert [one.tokens for one in best(Ensemble([model, model]), beam=3)] == [
        one.tokens for one in best(model, beam=3)
    ]


def test_models_of_different_vocabularies_are_no_ensemble():
    with pytest.raises(DataError, match="different vocabularies"):
        Ensemble([Toy(6, 1), Toy(7, 1)])


@given(seed=seeds, beam=st.integers(1, 4))
def test_a_trace_tells_how_the_best_was_found(seed, beam):
    trace = []
    (found,) = beam_search(Toy(8, seed), SOURCE, [6], beam=beam, penalty=PENALTY, trace=trace)
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
            total = sum(one.log_probability for one in target)
            expected = total / PENALTY(len(target)) if branch.fate == "ended" else total
            assert branch.score == pytest.approx(expected, rel=1e-4)
            if branch.fate == "ended":
                targets.append((branch.score, [one.token for one in target[:-1]]))
    if targets and len(found[0].log_probabilities) > len(found[0].tokens):
        assert max(targets)[1] == found[0].tokens
