import json

import numpy as np
import pytest
from corpora import corpus, refused, sentences, tokenizer, write
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.mixture import MIXTURE, Mixture, MixturePart, mixture_of, split_weight
from transduce.data.pair_files import Tsv
from transduce.data.prepare import prepare
from transduce.data.prepared import Pairs
from transduce.errors import ConfigError

weights = st.decimals(min_value="0.01", max_value=20, places=2).map(float)


def mixture(*parts):
    return Mixture(tuple(MixturePart(*part) for part in parts))


def test_whole_weights_are_numbers_of_copies():
    for epoch in range(5):
        assert mixture((2, 3.0), (3, 1.0)).counts(seed=1, epoch=epoch).tolist() == [3, 3, 1, 1, 1]


def test_another_half_is_seen_in_the_next_epoch():
    half = mixture((100, 0.5))
    first, second, third = (half.counts(seed=1, epoch=epoch) for epoch in range(3))
    assert first.sum() == second.sum() == 50
    assert (first + second == 1).all()
    assert (first == third).all()
    assert (first != half.counts(seed=2, epoch=0)).any()


@given(pairs=st.integers(0, 150), weight=weights, seed=st.integers(0, 2**32), epoch=st.integers(0, 10**6))
def test_every_pair_is_seen_as_often_as_its_weight_rounded_up_or_down(pairs, weight, seed, epoch):
    counts = mixture((pairs, weight)).counts(seed, epoch)
    assert set(counts.tolist()) <= {int(np.floor(weight)), int(np.ceil(weight))}
    assert abs(counts.sum() - weight * pairs) < 1.001


@given(pairs=st.integers(1, 40), weight=weights, epochs=st.integers(1, 12))
@settings(max_examples=30)
def test_no_pair_is_ahead_of_another_after_several_epochs(pairs, weight, epochs):
    total = sum(mixture((pairs, weight)).counts(3, epoch) for epoch in range(epochs))
    assert total.max() - total.min() <= 1
    assert abs(total.mean() - weight * epochs) < 1


def test_0_29_of_100_pairs_are_29():
    for epoch in range(7):
        assert mixture((100, 0.29)).counts(1, epoch).sum() == 29


@pytest.mark.parametrize(
    ("name", "file", "weight"),
    [("a.tsv:3", "a.tsv", 3), ("a.tsv:0.5", "a.tsv", 0.5), ("a.tsv:.5", "a.tsv", 0.5),
     ("a.tsv", "a.tsv", None), ("b:2", "b:2", None), ("b:2:4", "b:2", 4), ("missing:3", "missing", 3),
     ("missing:x", "missing:x", None),
     ("missing:0", "missing:0", None), ("x" * 300, "x" * 300, None)],
)  # fmt: skip
def test_weights_follow_the_last_colon_unless_there_is_such_a_file(tmp_path, name, file, weight):
    write(tmp_path / "a.tsv", ["a\tb"])
    write(tmp_path / "b:2", ["a\tb"])
    assert split_weight(tmp_path / name) == (tmp_path / file, weight)


@pytest.mark.parametrize("weight", ["0", "-1", "1001", "x", "nan", "inf", "1e9", "", "٣", "3 "])
def test_what_is_not_a_weight_is_refused(tmp_path, weight):
    path = write(tmp_path / "a.tsv", ["a\tb"])
    with pytest.raises(ConfigError, match=r"a\.tsv") as caught:
        split_weight(tmp_path / f"a.tsv:{weight}")
    assert repr(weight) in caught.value.problem
    assert f"{path}:3" in caught.value.remedy


def test_a_weight_of_aligned_files_may_be_at_either_side(tmp_path):
    paths = [write(tmp_path / name, ["a\tb"]) for name in ("a.en", "a.de", "c.tsv")]
    for source, target in (("a.en:3", "a.de"), ("a.en", "a.de:3"), ("a.en:3", "a.de:3.0")):
        found = Corpus.of(
            [tmp_path / source], [tmp_path / target], [tmp_path / "c.tsv:0.5"], "training", weighted=True
        )
        assert found == Corpus((AlignedFiles(*paths[:2]), Tsv(paths[2])), weights=(3, 0.5))
    with pytest.raises(ConfigError, match=r"a\.en .* 3, .*a\.de .* 2"):
        Corpus.of([tmp_path / "a.en:3"], [tmp_path / "a.de:2"], [], "training", weighted=True)


def prepared_mixture(folder, weights):
    first, second = sentences(60), sentences(90, seed=1)
    parts = [
        part
        for name, lines in (("a", first), ("b", second))
        for part in corpus(folder, [(line, line) for line in lines], name).parts
    ]
    valid = corpus(folder, [(line, line) for line in sentences(5, seed=2)], "valid")
    prepare(folder / "out", tokenizer(), Corpus(tuple(parts), weights=weights), valid, max_length=12)
    return Pairs.open(folder / "out" / "train"), Pairs.open(folder / "out" / "valid")


def test_prepared_pairs_know_their_weights(tmp_path):
    train, valid = prepared_mixture(tmp_path, (2.0, 0.5))
    assert valid.mixture is None
    short = [sum(len(tokenizer().encode_source([line])[0]) <= 12 for line in lines)
             for lines in (sentences(60), sentences(90, seed=1))]  # fmt: skip
    assert 0 < short[0] < 60
    assert train.mixture.parts == ((short[0], 2.0), (short[1], 0.5))
    assert train.mixture.weights.tolist() == [2.0] * short[0] + [0.5] * short[1]
    plain, _ = prepared_mixture(tmp_path, (1.0, 1.0))  # into the same folder, as after an interruption
    assert plain.mixture is None
    assert not (tmp_path / "out" / "train" / MIXTURE).exists()


def test_held_out_pairs_are_not_repeated(tmp_path):
    lines = sentences(300)
    parts = corpus(tmp_path, [(line, line) for line in lines]).parts
    plain = prepare(tmp_path / "plain", tokenizer(), Corpus(parts), hold_out=0.2)
    weighted = prepare(tmp_path / "weighted", tokenizer(), Corpus(parts, weights=(3.0,)), hold_out=0.2)
    assert len(plain.valid) == len(weighted.valid)
    assert weighted.train.mixture.parts == ((len(plain.train), 3.0),)


def test_equal_weights_of_1_are_no_mixture():
    assert mixture_of([3, 4], [1.0, 1.0]) is mixture_of([3], []) is None
    assert str(mixture_of([3000, 4], [1.0, 0.5])) == "3,000 × 1 + 4 × 0.5"


@pytest.mark.parametrize(
    "content",
    ["", "[", "7", '[{"pairs": 3}]', '[{"pairs": 4, "weight": 2}]', '[{"pairs": 3, "weight": 0}]', "null",
     '[{"pairs": 3, "weight": 1e300}]', '[{"pairs": 3, "weight": NaN}]', '[{"pairs": "3", "weight": 2}]',
     '[{"pairs": 4, "weight": 2}, {"pairs": -1, "weight": 2}]', "[" * 10**5],
)  # fmt: skip
def test_a_damaged_mixture_is_refused(tmp_path, content):
    (tmp_path / MIXTURE).write_text(content)
    assert MIXTURE in refused(Mixture.load, tmp_path, 3)


def test_a_mixture_is_read_as_it_was_written(tmp_path):
    parts = mixture((5, 0.1), (7, 3.0))
    parts.save(tmp_path)
    assert Mixture.load(tmp_path, 12) == parts
    assert json.loads((tmp_path / MIXTURE).read_text())[1] == {"pairs": 7, "weight": 3.0}
    assert Mixture.load(tmp_path / "nowhere", 12) is None
