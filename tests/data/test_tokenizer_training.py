import json
import re
import unicodedata

import pytest
from corpora import KINDS, refused, sentences, tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from transduce.data.normalization import normalize_text
from transduce.data.tokenizer import SPECIAL
from transduce.data.tokenizer_training import train_side_tokenizer, train_tokenizer
from transduce.errors import ConfigError

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_the_same_text_gives_the_same_tokenizer(kind):
    first, second = (train_side_tokenizer(sentences(200), kind=kind, size=600) for _ in range(2))
    assert first.backend.get_vocab() == second.backend.get_vocab()


def test_training_on_counted_words_equals_training_on_lines():
    lines = [*sentences(200), "the  dog\u2028runs", "a\tcat", "", "children's (play);", "7%  <s>"]
    side = train_side_tokenizer(lines, kind="bpe", size=600)
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    assert json.loads(side.backend.to_str())["model"] == json.loads(backend.to_str())["model"]


def test_one_vocabulary_or_two():
    source, target = ["aaa bbb"] * 9, ["xxx yyy zzz"] * 9
    joint = train_tokenizer(source, target, kind="char")
    assert joint.joint
    assert joint.source is joint.target
    assert joint.vocabulary.source == joint.vocabulary.target == 4 + 256 + 6
    separate = train_tokenizer(source, target, kind="char", joint=False)
    assert not separate.joint
    assert (separate.vocabulary.source, separate.vocabulary.target) == (4 + 256 + 3, 4 + 256 + 4)
    assert separate.encode_source(["a"]) != joint.encode_source(["x"])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_every_byte_must_fit_into_the_vocabulary(kind):
    said = refused(train_tokenizer, ["a"], ["b"], kind=kind, size=259)
    assert "259" in said
    least = int(re.search(r"--vocabulary (\d+)", said).group(1))
    assert f"--vocabulary {least}" in refused(train_tokenizer, ["a"], ["b"], kind=kind, size=least - 1)
    tokens = train_tokenizer(sentences(50), [], kind=kind, size=least)
    assert tokens.source.size <= least
    assert tokens.decode(tokens.target.encode(["ж🍜"])[0]) == "ж🍜"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize("size", [520, 600, 700])
def test_the_size_is_a_limit(kind, size):
    assert 260 <= train_side_tokenizer(sentences(100), kind=kind, size=size).size <= size


@every_kind
def test_no_text_to_learn_from(kind):
    tokens = train_tokenizer([], [], kind=kind, size=600)
    assert tokens.decode(tokens.target.encode(["ж a"])[0]) == "ж a"


def test_characters_are_one_token_each():
    side = train_side_tokenizer(["abc äöü"], kind="char", size=0)
    assert [len(ids) for ids in side.encode(["cab ü", "ж", "🍜"])] == [5, 2, 4]
    assert side.size == 4 + 256 + 7


@given(text=st.text())
def test_bytes_are_one_token_each(text):
    (ids,) = tokenizer("byte").source.encode([text])
    assert len(ids) == len(normalize_text(text).encode())


PHONES = ["a̠ t͡ʃ i", "t͡ʃ i", "k a̠ k i"]


def test_symbols_are_one_token_each():
    side = train_side_tokenizer(PHONES, kind="symbols", size=300)
    assert side.size == 4 + 256 + 4  # special tokens, bytes, symbols
    assert [len(ids) for ids in side.encode(["a̠ t͡ʃ i", "i  k", "x̠ i", ""])] == [3, 3, 5, 0]
    assert side.decode(side.encode(["a̠ t͡ʃ x̠ i"])[0]) == "a̠ t͡ʃ x̠ i"
    assert side.warnings == []


def test_the_most_frequent_symbols_are_in_the_vocabulary():
    side = train_side_tokenizer(PHONES, kind="symbols", size=262)
    assert [len(ids) for ids in side.encode(["i", "k"])] == [1, 2]
    (warning,) = side.warnings
    assert "4 symbols" in warning
    assert "2 of them" in warning


def test_each_side_may_have_its_own_kind():
    words = ["chicha", "kaki"] * 2
    pair = train_tokenizer(words, PHONES, source_kind="char", target_kind="symbols")
    assert not pair.joint
    assert [len(ids) for ids in pair.encode_source(["kaki"])] == [4 + 1]
    assert [len(ids) for ids in pair.encode_target(["k a̠ k i"])] == [4 + 1]
    only_target = train_tokenizer(words, PHONES, kind="char", target_kind="byte")
    assert (only_target.vocabulary.source, only_target.vocabulary.target) == (4 + 256 + 5, 4 + 256)
    assert train_tokenizer(words, PHONES, source_kind="char", target_kind="char").joint


HANGUL = [" ".join(chr(0xAC00 + 28 * n + m) for m in range(9)) for n in range(60)] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_vocabulary_too_small_for_the_alphabet_is_reported(kind):
    (warning,) = train_tokenizer(HANGUL, [], kind=kind, size=540).warnings
    assert "540" in warning
    assert f"{9 * 60} characters" in warning
    assert train_tokenizer(sentences(100), [], kind=kind, size=600).warnings == []


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_vocabulary_with_the_whole_alphabet_raises_no_warning(kind):
    assert train_tokenizer(HANGUL, [], kind=kind, size=3000).warnings == []


def test_a_warning_of_both_sides_is_given_once():
    assert len(train_tokenizer(HANGUL, HANGUL, size=400, joint=False).warnings) == 1


def test_jamo_are_tokens_where_text_is_decomposed():
    composed = train_side_tokenizer(["한국"], kind="char")
    decomposed = train_side_tokenizer(["한국"], kind="char", normalize="nfd")
    assert len(composed.encode(["한국"])[0]) == 2
    assert len(decomposed.encode(["한국"])[0]) == 6
    assert decomposed.decode(decomposed.encode(["한국"])[0]) == unicodedata.normalize("NFD", "한국")


def test_no_break_spaces_are_spaces_with_nfkc():
    side = train_side_tokenizer(["a\u00a0b\u202fc"], kind="symbols", normalize="nfkc")
    assert [len(ids) for ids in side.encode(["a b c", "a\u202fb"])] == [3, 2]


def test_an_unknown_kind_and_a_single_text_are_refused():
    with pytest.raises(ConfigError, match="no tokenizer of kind 'chars'; use one of bpe, "):
        train_tokenizer(["a"], ["b"], kind="chars")
    with pytest.raises(TypeError, match="a list of texts"):
        train_tokenizer("a", "b")
