import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from corpora import sentences, tokenizer
from hypothesis import given
from hypothesis import strategies as st

from transduce.data import words
from transduce.data.normalization import normalize_text
from transduce.data.rows import Rows
from transduce.data.words import WordCache, count_words, repeated, words_of, words_of_all

spaces = [" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u2028", "\x1c", "\u200d", "\u00ad"]
texts = (
    st.lists(st.sampled_from(["the", "dog", "a", "ж", *spaces]), max_size=10).map("".join).map(normalize_text)
)
batches = st.lists(texts | st.text().map(normalize_text), max_size=6)


@given(text=texts | st.text().map(normalize_text))
def test_words_stand_one_space_apart(text):
    found = words_of(text)
    assert " ".join(found) == text
    apart = text.split() == text.split(" ")
    assert found == (text.split(" ") if apart else [text])


@given(batch=batches)
def test_many_texts_are_split_as_each_is(batch):
    found, counts = words_of_all(batch)
    assert found == [word for text in batch for word in words_of(text)]
    assert counts == [len(words_of(text)) for text in batch]


def test_the_only_printable_white_space_is_a_space():
    """Check an assumption of `words_of`."""
    assert [chr(code) for code in range(0x110000) if chr(code).isspace() and chr(code).isprintable()] == [" "]


def letters(texts):
    """Encode texts with one id per letter and per space, which begins a word."""
    return Rows.of(
        [[0 if letter == " " else ord(letter) for letter in f" {text}"] if text else [] for text in texts]
    )


BEGINS = np.arange(0x110000) == 0


@given(calls=st.lists(batches, max_size=4), most=st.integers(0, 20))
def test_cached_words_equal_encoded_words_for_any_cache_size(calls, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "MAX_CACHED_IDS", most)
        cache = WordCache(letters, BEGINS)
        for batch in calls:
            assert cache.encode(batch).tolist() == letters(batch).tolist()


def test_a_word_is_encoded_once():
    asked = []

    def encode(batch):
        asked.extend(word for text in batch for word in text.split(" "))
        return letters(batch)

    cache = WordCache(encode, BEGINS)
    cache.encode(["the dog", "the cat"])
    cache.encode(["a cat and the dog"])
    assert asked == ["the", "dog", "cat", "a", "and"]


def test_several_threads_may_encode_at_once():
    def encode(batch):
        time.sleep(0.001)  # let another thread in
        return letters(batch)

    cache = WordCache(encode, BEGINS)
    batches = [[f"{'abcdefgh'[(i // 4) % 8] * j} dog{i} cat" for j in range(1, 6)] for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(cache.encode, batches))
    assert [rows.tolist() for rows in found] == [letters(batch).tolist() for batch in batches]


def test_words_without_a_beginning_are_encoded_by_themselves():
    """Some ready-made tokenizers have one id for all unknown words."""

    def encode(batch):
        return Rows.of([[0 if word == "known" else 7 for word in text.split(" ")] for text in batch])

    cache = WordCache(encode, BEGINS)
    assert cache.encode(["known", "known odd", "odd known odd"]).tolist() == [[0], [0, 7], [7, 0, 7]]


@given(batch=st.lists(texts, max_size=20))
def test_words_are_counted(batch):
    expected = Counter(word for text in batch for word in words_of(text) if word)
    assert count_words(iter(batch)) == expected


def test_long_texts_are_counted_in_batches(monkeypatch):
    monkeypatch.setattr(words, "_BATCH_CHARACTERS", 50)
    lines = sentences(200)
    assert count_words(lines) == Counter(word for line in lines for word in line.split())


def test_the_most_frequent_words_are_kept_if_there_are_too_many(monkeypatch):
    monkeypatch.setattr(words, "_BATCH_CHARACTERS", 100)
    monkeypatch.setattr(words, "MAX_COUNTED_BYTES", 1000)
    lines = [f"the dog {number} ж{number}" for number in range(2000)]
    counts = count_words(lines)
    assert (counts["the"], counts["dog"]) == (2000, 2000)
    assert 500 - 20 <= len(" ".join(counts).encode()) <= 1000


def test_languages_that_follow_each_other_are_both_counted(monkeypatch):
    monkeypatch.setattr(words, "_BATCH_CHARACTERS", 100)
    monkeypatch.setattr(words, "MAX_COUNTED_BYTES", 1000)
    lines = [f"{word} {word}{number}" for word in ("house", "Haus") for number in range(500)]
    assert {count_words(lines)[word] for word in ("house", "Haus")} == {500}


@given(counts=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3500)).map(Counter))
def test_words_are_read_as_often_as_counted(counts):
    assert Counter(word for text in repeated(counts) for word in text.split(" ")) == counts


@given(counts=st.dictionaries(st.text("abc", min_size=1), st.integers(1, 500)).map(Counter))
def test_trainers_read_an_even_share_of_too_many_words(counts):
    most = 300
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "MAX_TRAINING_WORDS", most)
        read = Counter(word for text in repeated(counts) for word in text.split(" "))
    total = counts.total()
    assert read.total() == min(total, most) or total > most > read.total() >= most - 1
    share = min(1, most / total) if total else 1
    assert all(abs(read[word] - share * count) <= 1 for word, count in counts.items())


def test_the_library_encodes_each_word_once():
    """The cache that is tested here is the one that tokenizers use."""
    assert isinstance(tokenizer("bpe").source._words, WordCache)
    assert tokenizer("char").source._words is None
