import math
import random
from collections import Counter
from heapq import heappop
from itertools import product

import pytest
from corpora import refused, sentences, tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from transduce.data.bpe_dropout import BpeDropout
from transduce.data.normalization import normalize_text

words = ["the", "dog", "children's", "Straße", "große", " ", "  ", "</s>", "<unk>", "\u2028", "🍜", "42", "ж"]
texts = (st.text() | st.lists(st.sampled_from(words), max_size=12).map("".join)).map(normalize_text)
seeds = st.integers(0, 2**32)
LINES = sentences(50, seed=3)


@given(text=texts)
def test_zero_dropout_equals_the_tokenizer(text):
    side = tokenizer().source
    assert side.dropout().encode(text, 0, random.Random(0)) == side.encode([text])[0]


def test_no_random_numbers_are_used_without_dropout():
    generator = random.Random(0)
    before = generator.getstate()
    tokenizer().source.dropout().encode("the children's dog", 0, generator)
    assert generator.getstate() == before


@given(text=texts, p=st.floats(0, 1), seed=seeds)
def test_any_segmentation_is_the_same_text(text, p, seed):
    side = tokenizer().source
    ids = side.dropout().encode(text, p, random.Random(seed))
    assert side.decode(ids) == text
    assert all(4 <= token < side.size for token in ids)


@given(text=texts, p=st.floats(0, 1), seed=seeds)
def test_masking_depends_on_the_generator_alone(text, p, seed):
    dropout = tokenizer().source.dropout()
    assert dropout.encode(text, p, random.Random(seed)) == dropout.encode(text, p, random.Random(seed))


def test_a_generator_goes_on_where_it_was_saved():
    dropout, generator = tokenizer().source.dropout(), random.Random(1)
    dropout.encode(LINES[0], 0.3, generator)
    state = generator.getstate()
    expected = [dropout.encode(line, 0.3, generator) for line in LINES]
    generator.setstate(state)
    assert [dropout.encode(line, 0.3, generator) for line in LINES] == expected


def test_each_reading_may_give_another_segmentation():
    dropout, generator = tokenizer().source.dropout(), random.Random(0)
    assert len({tuple(dropout.encode(LINES[0], 0.2, generator)) for _ in range(50)}) > 10


def test_more_dropout_gives_more_tokens():
    dropout = tokenizer().source.dropout()
    counts = [
        sum(len(dropout.encode(line, p, random.Random(0))) for line in LINES) for p in (0, 0.1, 0.5, 0.9, 1)
    ]
    assert counts == sorted(set(counts))


def test_full_dropout_gives_single_bytes():
    dropout = tokenizer().source.dropout()
    for line in LINES:
        # In bytes, with the space before the first word.
        assert len(dropout.encode(line, 1, random.Random(0))) == len(f" {line}".encode())
    near = sum(len(dropout.encode(line, 0.99, random.Random(0))) for line in LINES)
    assert near > 0.95 * sum(len(f" {line}".encode()) for line in LINES)


def small_bpe(merges):
    pieces = sorted({*"abc", *("".join(merge) for merge in merges)}, key=lambda piece: (len(piece), piece))
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return backend


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_a_merge_is_skipped_as_often_as_it_should(p):
    dropout, generator = BpeDropout(small_bpe([("a", "b")])), random.Random(0)
    lengths = [len(dropout.encode("ab", p, generator)) for _ in range(4000)]
    assert lengths.count(2) / 4000 == pytest.approx(p, abs=0.03)


def test_a_merge_skipped_once_may_come_later():
    """As in the paper, every step decides again: abc is b+c first, and a+b only if that was dropped."""
    dropout, generator = (
        BpeDropout(small_bpe([("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")])),
        random.Random(0),
    )
    seen = {tuple(dropout.encode("abc", 0.5, generator)) for _ in range(500)}
    ids = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5}
    ways = [["a", "b", "c"], ["ab", "c"], ["a", "bc"], ["abc"]]
    assert seen == {tuple(ids[piece] for piece in way) for way in ways}


MERGES = [("b", "c"), ("a", "b"), ("a", "a"), ("ab", "c"), ("a", "bc"), ("abc", "a"), ("c", "a"), ("ca", "a")]


def probabilities(pieces, p):
    """Return the probability of each outcome by the paper's algorithm, from all ways to drop pairs."""
    ranks = {merge: rank for rank, merge in enumerate(MERGES)}
    places = [place for place in range(len(pieces) - 1) if pieces[place : place + 2] in ranks]
    if not places:
        return {pieces: 1.0}
    law = Counter()
    for kept in product([False, True], repeat=len(places)):
        chance = math.prod(1 - p if keep else p for keep in kept)
        left = min(
            (place for place, keep in zip(places, kept, strict=True) if keep),
            key=lambda place: ranks[pieces[place : place + 2]],
            default=None,
        )
        if left is None:
            law[pieces] += chance
            continue
        merged = (*pieces[:left], "".join(pieces[left : left + 2]), *pieces[left + 2 :])
        for outcome, then in probabilities(merged, p).items():
            law[outcome] += chance * then
    return law


@pytest.mark.parametrize("p", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("word", ["abc", "abcaab", "caabcab"])
def test_outcomes_are_as_likely_as_the_paper_makes_them(word, p):
    backend, generator, draws = small_bpe(MERGES), random.Random(1), 6000
    dropout, names = BpeDropout(backend), {index: piece for piece, index in backend.get_vocab().items()}
    seen = Counter(tuple(names[token] for token in dropout.encode(word, p, generator)) for _ in range(draws))
    law = probabilities(tuple(word), p)
    assert sum(law.values()) == pytest.approx(1)
    assert set(seen) <= set(law)
    for outcome, chance in law.items():
        deviation = math.sqrt(chance * (1 - chance) / draws)
        assert abs(seen[outcome] / draws - chance) <= 4.5 * deviation + 1e-12


def test_words_are_forgotten_when_they_are_many(monkeypatch):
    monkeypatch.setattr("transduce.data.bpe_dropout._CACHED_WORDS", 3)
    side = tokenizer().source
    dropout = side.dropout()
    assert [dropout.encode(line, 0, random.Random(0)) for line in LINES] == side.encode(LINES)
    assert len(dropout._whole) <= 3


LONG = "".join(random.Random(7).choices("thedogcatsr", k=40_000))


def test_a_very_long_word():
    side = tokenizer().source
    dropout = side.dropout()
    assert dropout.encode(LONG, 0, random.Random(0)) == side.encode_slowly([LONG])[0]
    assert side.decode(dropout.encode(LONG, 0.1, random.Random(0))) == LONG


@pytest.mark.parametrize("p", [0, 0.1, 0.9])
def test_the_work_grows_linearly_with_the_length_of_a_word(p, monkeypatch):
    steps = 0

    def counted(heap):
        nonlocal steps
        steps += 1
        return heappop(heap)

    def work(length):
        nonlocal steps
        steps = 0
        tokenizer().source.dropout().encode(LONG[:length], p, random.Random(0))
        return steps

    monkeypatch.setattr("transduce.data.bpe_dropout.heappop", counted)
    assert work(8000) < 6 * work(2000)  # 4 times if linear, 16 if quadratic


@given(text=st.text("abc ", max_size=30))
def test_merges_go_by_rank_and_then_from_the_left(text):
    backend = small_bpe([("b", "c"), ("a", "a"), ("a", "b"), ("aa", "bc"), ("c", "c"), ("ab", "ab")])
    assert BpeDropout(backend).encode(text, 0, random.Random(0)) == backend.encode(text).ids


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "char", "byte"])
def test_other_tokenizers_have_no_dropout(kind):
    assert "--tokenizer bpe" in refused(tokenizer(kind).source.dropout)
