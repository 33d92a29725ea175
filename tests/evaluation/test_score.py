import math
import random

import numpy as np
import pytest
import torch

from builders import random_words, small_config
from transduce.data.batching import pad
from transduce.data.readable import readable
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import DataError
from transduce.evaluation import score as module
from transduce.evaluation.score import Total, score_pairs
from transduce.models.build import build
from transduce.training.objectives.translation import batch_loss

WORDS = random_words(40)
SOURCES = [" ".join(random.Random(n).choices(WORDS, k=1 + n % 7)) for n in range(30)]
TARGETS = [" ".join(random.Random(-n).choices(WORDS, k=1 + n % 5)) for n in range(30)]
TOKENIZER = train_tokenizer(SOURCES, TARGETS, kind="bpe", size=300)


def model(**changes):
    return build(small_config(**changes), TOKENIZER.vocabulary, seed=1).eval()


def scores(of, sources=SOURCES, targets=TARGETS, **settings):
    return list(score_pairs(of, TOKENIZER, sources, targets, **settings))


def brute_force(of, source, target):
    """One pair, all logits."""
    vocabulary = TOKENIZER.vocabulary
    (source_ids,), (target_ids,) = TOKENIZER.encode_source([source]), TOKENIZER.encode_target([target])
    read = torch.tensor([[vocabulary.bos, *target_ids[:-1]]])
    with torch.no_grad():
        logits = of(torch.tensor([source_ids]), read)
    return logits.log_softmax(-1)[0, torch.arange(len(target_ids)), target_ids].tolist()


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "rotary"}, {"share": "none"}])
def test_it_is_what_one_pair_at_a_time_gives(changes):
    one = model(**changes)
    found = scores(one)
    assert len(found) == len(SOURCES)
    for score, source, target in zip(found, SOURCES, TARGETS, strict=True):
        assert score.log_probabilities == pytest.approx(brute_force(one, source, target), abs=1e-5)
        assert score.log_probability == pytest.approx(sum(score.log_probabilities))
        assert len(score.tokens) == len(score.log_probabilities) - 1
        assert score.tokens == readable(TOKENIZER.target, TOKENIZER.encode_target([target])[0][:-1])


@pytest.mark.parametrize("settings", [{"ahead": 7}, {"max_tokens": 1}, {"max_tokens": 60, "ahead": 11}])
def test_neighbours_change_nothing(settings):
    one = model()
    for alone, together in zip(scores(one, **settings), scores(one), strict=True):
        assert alone.tokens == together.tokens
        assert alone.log_probabilities == pytest.approx(together.log_probabilities, abs=1e-5)


def test_so_do_chunks_of_positions(monkeypatch):
    one = model()
    wanted = scores(one)
    monkeypatch.setattr(module, "POSITIONS", 5)
    for some, all_at_once in zip(scores(one), wanted, strict=True):
        assert some.log_probabilities == pytest.approx(all_at_once.log_probabilities, abs=1e-5)


def test_batches_hold_no_more_than_they_may(monkeypatch):
    sizes = []
    real = module.log_probabilities

    def spy(of, batch):
        sizes.append(max(batch.source.numel(), batch.target.numel()))
        return real(of, batch)

    monkeypatch.setattr(module, "log_probabilities", spy)
    scores(model(), max_tokens=100)
    assert max(sizes) <= 100
    assert len(sizes) < len(SOURCES) / 2


def test_perplexity_is_what_validation_reports():
    one = model()
    total = Total()
    for score in scores(one):
        total.add(score)
    batch = pad(
        [np.array(ids) for ids in TOKENIZER.encode_source(SOURCES)],
        [np.array(ids) for ids in TOKENIZER.encode_target(TARGETS)],
        TOKENIZER.vocabulary,
    )
    with torch.no_grad():
        loss = batch_loss(one, batch, smoothing=0.1)
    assert total.pairs == len(SOURCES)
    assert total.tokens == loss.tokens
    assert -total.log_probability == pytest.approx(loss.negative_log_likelihood, rel=1e-6)
    assert total.perplexity == pytest.approx(math.exp(loss.negative_log_likelihood / loss.tokens), rel=1e-6)


def test_there_is_no_dropout_and_the_model_stays_as_it_was():
    one = model(dropout=0.5)
    wanted = scores(one)
    assert scores(one.train()) == wanted
    assert one.training
    assert not one.eval().training
    scores(one)
    assert not one.training


def test_they_come_as_they_are_read():
    """Memory is bounded: of an endless corpus, the first scores come after a few pairs."""
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield "a b"

    found = score_pairs(model(), TOKENIZER, endless(), endless(), ahead=5)
    assert len([next(found) for _ in range(7)]) == 7
    assert len(taken) <= 22


def test_mistakes_are_named():
    names = ("a.txt", "b.txt")
    with pytest.raises(DataError, match=r"b\.txt has 2 lines, and a\.txt has more"):
        scores(model(), ["a"] * 3, ["a"] * 2, names=names)
    with pytest.raises(DataError, match=r"a\.txt has 2 lines, and b\.txt has more"):
        scores(model(), ["a"] * 2, ["a"] * 3, names=names)
    with pytest.raises(DataError, match=r"b\.txt, line 5: empty"):
        scores(model(), ["a"] * 6, ["a"] * 4 + [" \u00a0", "a"], names=names, ahead=3)
    with pytest.raises(DataError, match=r"source, line 2: empty"):
        scores(model(), ["a", ""], ["a", "a"])
    short = model(positions="learned", max_length=8)
    with pytest.raises(DataError, match=r"target, line 2: \d+ tokens, but the model can read 8; leave"):
        scores(short, ["a", "a"], ["a", "a b c d e f g h i j k"])
