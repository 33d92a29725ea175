"""Beam search in C against the same search, step by step, in Python."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import choose_by_kernel, every_engine, needs_engine
from rounded_models import SUPPORTED, packed

from builders import TOKENS, padded, random_tokens, shared_by, small_model
from transduce.decoding.beam import beam_search
from transduce.decoding.candidates import ChooseDiverse
from transduce.decoding.penalties import paper_penalty, plain_penalty
from transduce.decoding.trace import Trace
from transduce.engine.precision import to_precision
from transduce.engine.running_search import RunningSearch
from transduce.errors import TransduceError
from transduce.models.protocol import SearchRequest

pytestmark = needs_engine


class BySteps:
    """A model without a search of its own."""

    def __init__(self, model):
        self.vocabulary = model.vocabulary
        self.encode, self.start, self.step = model.encode, model.start, model.step


def oracle(model, sources, limits, **options):
    """The search in Python, choosing continuations with the kernel's rounding: equal to the last bit."""
    with mock.patch("transduce.decoding.beam._choose", choose_by_kernel(model.engine)):
        return beam_search(BySteps(model), sources, limits, **options)


@pytest.fixture
def searches(monkeypatch):
    """One entry for each search in C."""
    calls = []
    run = RunningSearch.run
    monkeypatch.setattr(RunningSearch, "run", lambda search: calls.append(1) or run(search))
    return calls


@pytest.mark.parametrize("changes", SUPPORTED)
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("precision", ["int8", "float32", "bfloat16"])
def test_equal_to_the_search_in_python(changes, beam, precision, searches):
    model = packed(precision, **changes)
    sources, lengths = padded([9, 4, 1, 6, 3]), [12, 7, 1, 12, 9]
    found = beam_search(model, sources, lengths, beam=beam)
    assert searches == [1]
    assert found == oracle(model, sources, lengths, beam=beam)
    assert searches == [1]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    limits=st.lists(st.integers(1, 14), min_size=5, max_size=5),
    beam=st.integers(1, 6),
    count=st.integers(1, 6),
    alpha=st.floats(-1, 2),
    plain=st.booleans(),
    exact=st.booleans(),
    slots=st.sampled_from([1, 2, 64]),
    eagerness=st.floats(0, 4),
    seed=st.integers(0, 99),
)
def test_any_request_equals_the_oracle(
    lengths, limits, beam, count, alpha, plain, exact, slots, eagerness, seed
):
    """``eagerness`` is how soon the model would end; ``slots`` how many sentences run at a time."""
    model = _eager(eagerness)
    sources, limits = padded(lengths, seed=seed), limits[: len(lengths)]
    asked = {"beam": beam, "count": count, "exact": exact}
    asked["penalty"] = (plain_penalty if plain else paper_penalty)(alpha)
    with mock.patch("transduce.engine.packed_transformer.MAX_HYPOTHESES", slots * beam):
        found = beam_search(model, sources, limits, **asked)
    assert found == oracle(model, sources, limits, **asked)
    for hypotheses, limit in zip(found, limits, strict=True):
        assert 1 <= len(hypotheses) <= min(beam, count)
        assert all(len(one.log_probabilities) <= limit for one in hypotheses)


def _eager(eagerness):
    model = small_model(d_model=32, d_ff=48, heads=2, norm="pre")
    with torch.no_grad():  # whatever is said, the last norm adds something that ``eos`` likes
        model.decoder.final_norm.bias += eagerness * model.output.weight[model.vocabulary.eos]
    return to_precision(model, "int8")


@pytest.mark.parametrize("alpha", [-1, 0, 0.6, 2])
@pytest.mark.parametrize("eagerness", [0.3, 0.6, 1, 1.5])
@pytest.mark.parametrize(("beam", "exact"), [(1, True), (3, True), (3, False)])
def test_the_search_stops_when_the_oracle_stops(alpha, eagerness, beam, exact):
    """Where ends are likely, and what comes after them might be better."""
    model, sources, limits = _eager(eagerness), padded([*range(1, 9)] * 2), [*range(16, 0, -1)]
    asked = {"beam": beam, "count": 1, "exact": exact, "penalty": plain_penalty(alpha)}
    found = beam_search(model, sources, limits, **asked)
    assert found == oracle(model, sources, limits, **asked)


def test_targets_end_by_themselves_or_at_their_limit():
    """Both happen in the tests above."""
    sources, limits = padded([4] * 8), [9] * 8
    ends = {
        len(one.log_probabilities) > len(one.tokens)
        for eagerness in (0, 2)
        for several in beam_search(_eager(eagerness), sources, limits)
        for one in several
    }
    assert ends == {True, False}


@pytest.mark.parametrize(
    "others",
    [
        {"rules": [lambda scores, beams: None]},
        {"coverage": 0.2},
        {"choose": ChooseDiverse(groups=1, strength=0.0)},
        {"complete": lambda sentence, tokens: True},
        {"trace": Trace()},
        {"beam": TOKENS // 2},
    ],
)
def test_searches_that_the_kernel_cannot_run_go_step_by_step(others, searches):
    sources = random_tokens(1, 5)
    model = packed()
    assert beam_search(model, sources, [7], **{"beam": 3, **others})[0]
    assert not searches


def test_targets_may_be_long():
    model, sources = packed(), random_tokens(2, 5)
    found = beam_search(model, sources, [700, 3], beam=2)
    assert found == oracle(model, sources, [700, 3], beam=2)
    beam_search(_eager(9), sources, [20_000, 20_000])  # reserved memory that is not used


def test_learned_positions_have_a_limit():
    model, sources = packed(positions="learned", max_length=8), random_tokens(2, 5)
    assert len(beam_search(model, sources, [8, 8])) == 2
    with pytest.raises(ValueError, match="max_length is 8"):
        beam_search(model, sources, [9, 8])


def test_an_empty_batch():
    assert beam_search(packed(), random_tokens(0, 5), []) == []


def test_a_limit_below_one_is_one():
    model, sources = packed(), random_tokens(2, 5)
    assert (
        beam_search(model, sources, [0, -3])[0][0].tokens
        == beam_search(BySteps(model), sources, [1, 1])[0][0].tokens
    )


def test_a_limit_for_every_source():
    with pytest.raises(ValueError, match="1 limits for 2"):
        beam_search(packed(), random_tokens(2, 5), [4])


@every_engine
@pytest.mark.parametrize("precision", ["int8", "float32", "bfloat16"])
def test_every_instruction_set_finds_what_its_oracle_finds(engine, precision, monkeypatch):
    monkeypatch.setenv("TRANSDUCE_ENGINE", engine.name)
    model, sources = packed(precision), padded([9, 4, 1, 6, 3])
    assert model.engine == engine
    assert beam_search(model, sources, [12] * 5) == oracle(model, sources, [12] * 5)


@every_engine
@pytest.mark.parametrize("precision", ["int8", "float32", "bfloat16"])
def test_a_sentence_does_not_depend_on_its_company(engine, precision, monkeypatch):
    """To the last bit: whatever joins and leaves the batch beside it."""
    monkeypatch.setenv("TRANSDUCE_ENGINE", engine.name)
    model, lengths = packed(precision), [9, 4, 1, 6, 3, 17, 8, 2, 5, 30]
    sources, limits = padded(lengths), [length + 5 for length in lengths]
    alone = [
        beam_search(model, sources[n : n + 1, :length], limits[n : n + 1])[0]
        for n, length in enumerate(lengths)
    ]
    for slots in (2, 3, 7, 64):
        monkeypatch.setattr("transduce.engine.packed_transformer.MAX_HYPOTHESES", 4 * slots)
        assert beam_search(model, sources, limits) == alone


def test_sentences_join_a_running_search_and_leave_it():
    model, lengths = packed(), [9, 4, 1, 6, 3, 17]
    sources, limits = padded(lengths), [12, 3, 5, 9, 7, 4]
    expected = beam_search(model, sources, limits, beam=2, count=2)
    request = SearchRequest([], [1.0] * 30, beam=2, count=2, exact=True, bos=1, eos=2, forbidden=[0, 1])
    request = replace(request, penalties=[paper_penalty()(max(1, n)) for n in range(30)])
    search, found, tickets = model.running_search(request, slots=2), {}, {}
    for row, limit in zip(sources, limits, strict=True):
        tickets[search.add(row, limit)] = len(tickets)
        found |= search.advance() if len(tickets) > 2 else {}
    assert found  # some were finished before the last one joined
    while len(search):
        found |= search.advance()
    for ticket, row in tickets.items():
        assert [result.score for result in found[ticket]] == [one.score for one in expected[row]]


def _shortlists(sentences, seed, fewest=12):
    torch.manual_seed(seed)
    sizes = torch.randint(fewest, TOKENS, (sentences,)).tolist()
    lists = [torch.randperm(TOKENS)[:size].tolist() for size in sizes]
    return [torch.tensor(sorted({*listed, 2})) for listed in lists]  # 2 is eos


@every_engine
@pytest.mark.parametrize("precision", ["int8", "float32", "bfloat16"])
@pytest.mark.parametrize("beam", [1, 3])
def test_shortlists_give_what_the_oracle_gives_and_do_not_depend_on_company(
    engine, precision, beam, monkeypatch, searches
):
    monkeypatch.setenv("TRANSDUCE_ENGINE", engine.name)
    model, lengths = packed(precision), [9, 4, 1, 6, 3, 17, 8, 2, 5, 30]
    sources, limits = padded(lengths), [length + 5 for length in lengths]
    lists = _shortlists(len(lengths), seed=beam)
    alone = [
        beam_search(
            model, sources[n : n + 1, :length], limits[n : n + 1], beam=beam, shortlists=lists[n : n + 1]
        )[0]
        for n, length in enumerate(lengths)
    ]
    for slots in (2, 3, 64):
        monkeypatch.setattr("transduce.engine.packed_transformer.MAX_HYPOTHESES", beam * slots)
        assert beam_search(model, sources, limits, beam=beam, shortlists=lists) == alone
    assert searches
    # Probabilities are summed in another order than over the whole vocabulary: equal but for rounding.
    stepwise = beam_search(BySteps(model), sources, limits, beam=beam, shortlists=lists)
    for found, expected, listed in zip(alone, stepwise, lists, strict=True):
        assert [one.tokens for one in found] == [one.tokens for one in expected]
        assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
        assert {token for one in found for token in one.tokens} <= set(listed.tolist())


@settings(max_examples=40, deadline=None)
@given(seeds=st.lists(st.integers(0, 50), min_size=1, max_size=30), slots=st.integers(1, 5))
def test_shortlists_of_any_sentences_that_join_and_leave(seeds, slots):
    """Columns of the output layer are added, kept and forgotten as sentences come and go."""
    model, sources = packed(), torch.cat([random_tokens(1, 4, seed=seed) for seed in seeds])
    lists, limits = [_shortlists(1, seed, fewest=8)[0] for seed in seeds], [1 + seed % 7 for seed in seeds]
    with mock.patch("transduce.engine.packed_transformer.MAX_HYPOTHESES", 2 * slots):
        found = beam_search(model, sources, limits, beam=2, shortlists=lists)
    for n in range(len(seeds)):
        (alone,) = beam_search(
            model, sources[n : n + 1], limits[n : n + 1], beam=2, shortlists=lists[n : n + 1]
        )
        assert found[n] == alone


def test_a_whole_vocabulary_as_a_shortlist_changes_nothing():
    model, sources = packed(), padded([9, 4, 1, 6, 3])
    everything = [torch.arange(TOKENS)] * 5
    found = beam_search(model, sources, [12] * 5, shortlists=everything)
    assert found == beam_search(model, sources, [12] * 5)


def test_a_shortlist_too_small_for_the_beam_is_searched_step_by_step(searches):
    found = beam_search(packed(), random_tokens(1, 5), [7], beam=3, shortlists=[torch.tensor([2, 5, 6])])
    assert found[0]
    assert not searches
    assert {token for one in found[0] for token in one.tokens} <= {5, 6}


@pytest.mark.parametrize(
    "listed", [[5, 4, 6, 7, 8, 9, 10, 11], [2, 3, 4, 5, 6, 7, 8, TOKENS], [-1, *range(9)]]
)
def test_shortlists_that_are_out_of_order_or_range_are_refused(listed):
    with pytest.raises(ValueError, match="out of range, out of order"):
        beam_search(packed(), random_tokens(1, 5), [7], beam=2, shortlists=[torch.tensor(listed)])


def test_several_threads_may_search_at_a_time():
    """The positions of the longer texts are computed while others read theirs."""
    model = packed()
    lengths = [3, 40, 7, 90, 150, 20, 300, 2]
    jobs = [(random_tokens(2, 5, seed=seed), [length] * 2) for seed, length in enumerate(lengths)]
    expected = [beam_search(packed(), *job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda job: beam_search(model, *job), jobs)) == expected


def test_several_threads_find_the_same():
    model, sources = packed(), padded([9, 4, 1, 6, 3])
    expected = beam_search(model, sources, [12] * 5)
    with shared_by(threads=3):
        assert beam_search(model, sources, [12] * 5) == expected


def test_nan_logits_are_an_error():
    model = small_model(d_model=32, d_ff=48, heads=2)
    model.decoder.layers[0].feed_forward.inner.bias.data[5] = torch.nan
    with pytest.raises(TransduceError, match=r"NaN|numbers"):
        beam_search(to_precision(model, "int8"), random_tokens(2, 5), [4, 4])


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("changes", SUPPORTED)
def test_a_prefix_is_read_before_the_search(changes, beam, searches):
    model = packed("float32", **changes)
    sources, lengths, prefix = padded([9, 4, 1, 6, 3]), [12, 7, 1, 12, 9], [7, 11]
    found = beam_search(model, sources, lengths, beam=beam, prefix=prefix)
    assert searches == [1]
    assert found == oracle(model, sources, lengths, beam=beam, prefix=prefix)
    assert found != beam_search(model, sources, lengths, beam=beam)


def test_sentences_with_a_prefix_join_and_leave():
    model = packed("float32")
    sources = padded([5, 8, 2, 7, 3, 6])
    request = SearchRequest(
        [9] * 6, [1.0] * 30, beam=2, count=1, exact=True, bos=1, eos=2, forbidden=[0, 1], prefix=[5]
    )
    search = model.running_search(request, slots=2)
    for row in sources:
        search.add(row, 9)
    found = search.run()
    assert [found[ticket] for ticket in range(6)] == model.search(sources, request)


def test_a_search_stops_after_so_many_steps_and_sentences_can_be_cancelled():
    model, lengths = packed(), [9, 4, 6, 17]
    sources, limits = padded(lengths), [12, 12, 12, 12]
    expected = beam_search(model, sources, limits, beam=2, count=1)
    penalties = [paper_penalty()(max(1, n)) for n in range(30)]
    request = SearchRequest([], penalties, beam=2, count=1, exact=True, bos=1, eos=2, forbidden=[0, 1])
    search, found, tickets = model.running_search(request, slots=2), {}, {}
    for row, limit in zip(sources, limits, strict=True):
        tickets[len(tickets)] = search.add(row, limit)
    search.advance(1)
    search.cancel(tickets[0])  # running
    search.cancel(tickets[3])  # waiting
    assert len(search) == 2
    calls = 0
    while len(search):
        found |= search.advance(1)
        calls += 1
    assert calls > 2
    assert found.keys() == {tickets[1], tickets[2]}
    for row in (1, 2):
        assert [result.score for result in found[tickets[row]]] == [one.score for one in expected[row]]
