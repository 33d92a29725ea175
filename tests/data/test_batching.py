import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import Vocabulary
from transduce.data.batching import _cut, collate, group_steps, padding_share, plan_batches, plan_repeated
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.prepare import clean_lines, prepare
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer_training import train_tokenizer

lengths_of_pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=200).map(
    lambda pairs: np.array(pairs, np.int64).reshape(-1, 2).T
)
places = {"max_tokens": st.integers(1, 300), "seed": st.integers(0, 2**32), "epoch": st.integers(0, 1000)}


@given(lengths=lengths_of_pairs, **places)
def test_every_pair_is_in_one_batch(lengths, max_tokens, seed, epoch):
    batches = plan_batches(*lengths, max_tokens=max_tokens, seed=seed, epoch=epoch)
    assert all(len(batch) for batch in batches)
    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(lengths.shape[1]))


@given(lengths=lengths_of_pairs, **places)
def test_no_batch_is_over_its_budget(lengths, max_tokens, seed, epoch):
    source, target = lengths
    for batch in plan_batches(source, target, max_tokens=max_tokens, seed=seed, epoch=epoch):
        if len(batch) > 1:
            assert len(batch) * source[batch].max() <= max_tokens
            assert len(batch) * target[batch].max() <= max_tokens


@given(lengths=lengths_of_pairs, **places)
def test_the_order_is_a_function_of_seed_and_epoch(lengths, max_tokens, seed, epoch):
    first, second = (
        plan_batches(*lengths.copy(), max_tokens=max_tokens, seed=seed, epoch=epoch) for _ in range(2)
    )
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


@given(seed=st.integers(0, 2**32), epoch=st.integers(0, 1000))
@settings(max_examples=20)
def test_another_seed_or_epoch_is_another_order(seed, epoch):
    lengths = np.random.default_rng(0).integers(1, 30, (2, 500))
    plans = {
        str([batch.tolist() for batch in plan_batches(*lengths, max_tokens=200, seed=s, epoch=e)])
        for s, e in ((seed, epoch), (seed + 1, epoch), (seed, epoch + 1), (seed + 1, epoch + 1))
    }
    assert len(plans) == 4


def test_pairs_meet_others_in_every_epoch():
    lengths = np.random.default_rng(0).integers(1, 10, (2, 5000))
    first, second = (
        {frozenset(batch.tolist()) for batch in plan_batches(*lengths, max_tokens=100, seed=1, epoch=epoch)}
        for epoch in (0, 1)
    )
    assert len(first & second) < len(first) / 10


def test_batches_come_in_any_order_of_length():
    lengths = np.random.default_rng(0).integers(1, 50, (2, 2000))
    batches = plan_batches(*lengths, max_tokens=400, seed=1, epoch=0)
    longest = np.array([lengths[:, batch].max() for batch in batches])
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


@given(lengths=lengths_of_pairs, data=st.data(), **places)
def test_repeated_pairs_are_in_as_many_batches_as_they_should(lengths, data, max_tokens, seed, epoch):
    count = lengths.shape[1]
    copies = np.array(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)), np.int64)
    first, second = (
        plan_repeated(*lengths, copies, max_tokens=max_tokens, seed=seed, epoch=epoch) for _ in range(2)
    )
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]
    assert all(len(batch) for batch in first)
    seen = np.bincount([index for batch in first for index in batch.tolist()], minlength=count)
    assert seen.tolist() == copies.tolist()
    for batch in first:
        assert len(batch) == 1 or len(batch) * lengths[:, batch].max() <= max_tokens


def test_copies_of_a_pair_do_not_meet_in_a_batch_and_are_spread_over_the_epoch():
    lengths = np.random.default_rng(0).integers(1, 30, (2, 3000))
    copies = np.where(np.arange(3000) < 300, 5, 1)
    batches = plan_repeated(*lengths, copies, max_tokens=400, seed=1, epoch=0)
    assert all(len(set(batch.tolist())) == len(batch) for batch in batches)
    places = [[] for _ in range(300)]
    for place, batch in enumerate(batches):
        for index in batch[batch < 300]:
            places[index].append(place / len(batches))
    distances = np.diff(np.array(places), axis=1)
    assert distances.mean() == pytest.approx(0.2, abs=0.04)


def test_pairs_that_are_seen_once_are_planned_as_ever():
    lengths = np.random.default_rng(0).integers(1, 30, (2, 500))
    place = {"max_tokens": 200, "seed": 3, "epoch": 4}
    plans = plan_batches(*lengths, **place), plan_repeated(*lengths, np.ones(500, np.int64), **place)
    assert len({str([batch.tolist() for batch in plan]) for plan in plans}) == 1


def test_repeated_pairs_cause_little_padding():
    lengths = np.random.default_rng(0).integers(5, 60, 4000)
    copies = np.where(np.arange(4000) < 400, 5, 1)
    plain = plan_batches(lengths, lengths, max_tokens=2000, seed=1, epoch=0)
    repeated = plan_repeated(lengths, lengths, copies, max_tokens=2000, seed=1, epoch=0)
    assert padding_share(repeated, lengths) < padding_share(plain, lengths) + 0.05


def test_no_pairs_give_no_batches():
    nothing = np.empty(0, np.int64)
    assert plan_batches(nothing, nothing, max_tokens=100, seed=0, epoch=0) == []
    assert group_steps([], nothing, 10) == []
    assert padding_share([], nothing) == 0


def test_padding_by_hand():
    lengths = np.array([4, 2, 3, 3])
    assert padding_share([np.array([0, 1])], lengths) == pytest.approx(2 / 8)
    assert padding_share([np.array([0, 1]), np.array([2, 3])], lengths) == pytest.approx(2 / 14)


@pytest.fixture(scope="module")
def multi30k(tmp_path_factory):
    """Return the lengths of Multi30k's pairs with a vocabulary of 8,000 BPE tokens."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k-en-de"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    corpus = Corpus((AlignedFiles(folder / "train.en.gz", folder / "train.de.gz"),))
    tokenizer = train_tokenizer(
        (text for chunk in clean_lines(corpus) for text in chunk.sources),
        (text for chunk in clean_lines(corpus) for text in chunk.targets),
        kind="bpe",
        size=8000,
    )
    pairs = prepare(tmp_path_factory.mktemp("multi30k"), tokenizer, corpus, corpus).train
    assert len(pairs) == 29_000
    return pairs.source.lengths, pairs.target.lengths


@pytest.mark.parametrize("swapped", [False, True])
def test_little_of_real_data_is_padding(multi30k, swapped):
    source, target = multi30k[::-1] if swapped else multi30k
    for epoch in range(10):
        batches = plan_batches(source, target, max_tokens=4096, seed=1, epoch=epoch)
        assert padding_share(batches, source) < 0.05
        assert padding_share(batches, target) < 0.05


def meeting_again(batches, later, pairs):
    """Return how many of the neighbours in a batch of the first plan are neighbours in the second, too."""
    places = np.empty(pairs, np.int64)
    for place, batch in enumerate(later):
        places[batch] = place
    counts = [np.unique(places[batch], return_counts=True)[1] for batch in batches]
    couples = sum(len(batch) * (len(batch) - 1) for batch in batches)
    return sum(int((count * (count - 1)).sum()) for count in counts) / couples


def test_pairs_of_real_data_meet_others_in_other_epochs(multi30k):
    plans = [plan_batches(*multi30k, max_tokens=4096, seed=1, epoch=epoch) for epoch in range(8)]
    again = [meeting_again(plans[i], plans[i + 1], 29_000) for i in range(7)]
    assert sum(again) / len(again) < 0.4  # 0.59 if strips of one length are cut at the same places


def test_large_corpora_need_no_more_padding_to_mix():
    generator = np.random.default_rng(0)
    source = np.clip(generator.normal(14, 4, 300_000).round(), 4, 40).astype(np.int64)
    target = np.maximum(source + generator.normal(0.5, 2, len(source)).round().astype(np.int64), 3)
    plans = [plan_batches(source, target, max_tokens=4096, seed=1, epoch=epoch) for epoch in (0, 1)]
    assert max(padding_share(plan, side) for plan in plans for side in (source, target)) < 0.015
    assert meeting_again(*plans, len(source)) < 0.2


def test_the_work_in_python_is_per_batch_and_not_per_pair():
    lengths = np.random.default_rng(0).integers(4, 40, (2, 50_000))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        batches = plan_batches(*lengths, max_tokens=4096, seed=1, epoch=0)
    finally:
        sys.setprofile(before)
    assert len(batches) < 1000
    assert calls < 30 * len(batches)


def cut_slowly(order, lengths, max_tokens):
    """Cut batches pair by pair: the oracle."""
    batches, begin, longest = [], 0, 0
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if index > begin and (index - begin + 1) * longest > max_tokens:
            batches.append(order[begin:index])
            begin, longest = index, length
    return [*batches, order[begin:]] if len(order) else []


@given(lengths=st.lists(st.integers(1, 60), max_size=100), max_tokens=st.integers(1, 300), data=st.data())
def test_cut_as_if_pair_by_pair(lengths, max_tokens, data):
    order = np.array(data.draw(st.permutations(range(len(lengths)))), np.int64)
    fast = _cut(order, np.array(lengths, np.int64), max_tokens)
    assert [batch.tolist() for batch in fast] == [b.tolist() for b in cut_slowly(order, lengths, max_tokens)]


@given(first=st.floats(0, 1, exclude_max=True))
def test_the_first_batch_is_shortened(first):
    batches = _cut(np.arange(30), np.full(30, 5), 50, first=first)
    assert [len(batch) for batch in batches[:-1]] == [max(1, int(10 * first)), 10, 10]


@st.composite
def pairs_to_collate(draw):
    """Return rows as a tokenizer makes them: no special tokens inside, eos at the end; bos may be eos."""
    pad, bos, eos = draw(st.sampled_from([(0, 1, 2), (0, 2, 2), (1, 0, 2), (3, 3 - 1, 0), (7, 5, 5)]))
    row = st.lists(st.integers(8, 19), max_size=6).map(lambda ids: [*ids, eos])
    pairs = draw(st.lists(st.tuples(row, row), min_size=1, max_size=6))
    return Vocabulary(source=20, target=20, pad=pad, bos=bos, eos=eos), pairs


def prepared(folder, pairs):
    with PairWriter(folder, 20, 20) as writer:
        writer.write([source for source, _ in pairs], [target for _, target in pairs])
    return Pairs.open(folder)


@given(data=pairs_to_collate(), order=st.randoms(use_true_random=False))
def test_a_batch_holds_its_pairs(data, order, tmp_path_factory):
    vocabulary, pairs = data
    indices = list(range(len(pairs)))
    order.shuffle(indices)
    batch = collate(prepared(tmp_path_factory.mktemp("pairs"), pairs), np.array(indices), vocabulary)
    assert batch.source.dtype == batch.target.dtype == batch.labels.dtype == torch.int64
    assert batch.target.shape == batch.labels.shape
    width = max(len(target) for _, target in pairs)
    assert batch.labels.shape[1] == width
    assert batch.source.shape[1] == max(len(source) for source, _ in pairs)
    for row, index in enumerate(indices):
        source, target = pairs[index]
        padding = [vocabulary.pad] * (width - len(target))
        assert batch.source[row].tolist() == source + [vocabulary.pad] * (batch.source.shape[1] - len(source))
        assert batch.labels[row].tolist() == target + padding
        assert batch.target[row].tolist() == [vocabulary.bos, *target[:-1], *padding]


def test_a_batch_by_hand(tmp_path):
    pairs = prepared(tmp_path, [([5, 2], [7, 8, 9, 2]), ([5, 6, 6, 2], [8, 2])])
    batch = collate(pairs, np.array([1, 0]), Vocabulary(source=20, target=20))
    assert batch.source.tolist() == [[5, 6, 6, 2], [5, 2, 0, 0]]
    assert batch.target.tolist() == [[1, 8, 0, 0], [1, 7, 8, 9]]
    assert batch.labels.tolist() == [[8, 2, 0, 0], [7, 8, 9, 2]]
    assert all(a is b for a, b in zip(vars(batch.to("cpu")).values(), vars(batch).values(), strict=True))


@given(lengths=lengths_of_pairs, batch_tokens=st.integers(1, 500), **places)
def test_steps_reach_their_tokens_and_lose_nothing(lengths, batch_tokens, max_tokens, seed, epoch):
    source, target = lengths
    batches = plan_batches(source, target, max_tokens=max_tokens, seed=seed, epoch=epoch)
    steps = group_steps(batches, target, batch_tokens)
    assert [batch for step in steps for batch in step] == batches
    for number, step in enumerate(steps, 1):
        tokens = [int(target[batch].sum()) for batch in step]
        assert step
        assert sum(tokens) >= batch_tokens or number == len(steps)
        assert sum(tokens[:-1]) < batch_tokens
