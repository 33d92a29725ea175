import pytest

from builders import random_words
from transduce.data.tokenizer import TokenizerPair
from transduce.data.wordpiece import BERT_SPECIAL
from transduce.data.wordpiece_training import train_wordpiece
from transduce.errors import DataError

LINES = [" ".join(random_words(200)[begin : begin + 5]) for begin in range(0, 200, 5)]


def test_the_tokenizer_is_like_berts():
    side = train_wordpiece(LINES, size=100)
    assert [side.id_of(token) for token in BERT_SPECIAL] == [0, 1, 2, 3, 4]
    assert side.size == 100
    special = TokenizerPair(side, side).vocabulary
    assert (special.pad, special.bos, special.eos) == (0, 2, 3)
    assert side.decode(side.encode([LINES[0]])[0]) == LINES[0]
    assert side.encode(["[MASK]"]) == [[4]]
    assert side.encode(["日"]) == [[1]]


def test_cased_and_uncased_vocabularies():
    assert train_wordpiece(["Ab ab"], size=60).encode(["AB"]) == train_wordpiece(["Ab ab"], size=60).encode(
        ["ab"]
    )
    cased = train_wordpiece(["Ab ab"], size=60, cased=True)
    assert cased.encode(["Ab"]) != cased.encode(["ab"])


def test_training_is_deterministic():
    one, other = (train_wordpiece(LINES, size=120).backend.to_str() for _ in range(2))
    assert one == other


def test_a_vocabulary_that_is_too_small():
    with pytest.raises(DataError, match=r"10 .*--vocabulary \d+"):
        train_wordpiece(LINES, size=10)


def test_berts_own_vocabulary(shared):
    from transduce.data.tokenizer import load_side_tokenizer

    side = load_side_tokenizer(shared / "data" / "bert-base-uncased" / "vocab.txt")
    assert side.encode(["The [MASK] sat."]) == [[1996, 103, 2938, 1012]]
