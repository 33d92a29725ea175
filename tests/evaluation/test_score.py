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
    """Score one pair from all logits of its forward pass."""
    vocabulary = TOKENIZER.vocabulary
    (source_ids,), (target_ids,) = TOKENIZER.encode_source([source]), TOKENIZER.encode_target([target])
    read = torch.tensor([[vocabulary.bos, *target_ids[:-1]]])
    with torch.no_grad():
        logits = of(torch.tensor([source_ids]), read)
    return logits.log_softmax(-1)[0, torch.arange(len(target_ids)), target_ids].tolist()


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "rotary"}, {"share": "none"}])
def test_scores_equal_those_of_one_pair_at_a_time(changes):
    transformer = model(**changes)
    results = scores(transformer)
    assert len(results) == len(SOURCES)
    for score, source, target in zip(results, SOURCES, TARGETS, strict=True):
        assert score.log_probabilities == pytest.approx(brute_force(transformer, source, target), abs=1e-5)
        assert score.log_probability == pytest.approx(sum(score.log_probabilities))
        assert len(score.tokens) == len(score.log_probabilities) - 1
        assert score.tokens == readable(TOKENIZER.target, TOKENIZER.encode_target([target])[0][:-1])


@pytest.mark.parametrize("settings", [{"ahead": 7}, {"max_tokens": 1}, {"max_tokens": 60, "ahead": 11}])
def test_the_rest_of_the_batch_changes_nothing(settings):
    transformer = model()
    for alone, together in zip(scores(transformer, **settings), scores(transformer), strict=True):
        assert alone.tokens == together.tokens
        assert alone.log_probabilities == pytest.approx(together.log_probabilities, abs=1e-5)


def test_chunks_of_positions_change_nothing(monkeypatch):
    transformer = model()
    expected = scores(transformer)
    monkeypatch.setattr(module, "POSITIONS", 5)
    for chunked, whole in zip(scores(transformer), expected, strict=True):
        assert chunked.log_probabilities == pytest.approx(whole.log_probabilities, abs=1e-5)


def test_batches_keep_to_the_token_limit(monkeypatch):
    sizes = []
    real = module.log_probabilities

    def spy(of, batch):
        sizes.append(max(batch.source.numel(), batch.target.numel()))
        return real(of, batch)

    monkeypatch.setattr(module, "log_probabilities", spy)
    scores(model(), max_tokens=100)
    assert max(sizes) <= 100
    assert len(sizes) < len(SOURCES) / 2


def test_perplexity_equals_that_of_validation():
    transformer = model()
    total = Total()
    for score in scores(transformer):
        total.add(score)
    batch = pad(
        [np.array(ids) for ids in TOKENIZER.encode_source(SOURCES)],
        [np.array(ids) for ids in TOKENIZER.encode_target(TARGETS)],
        TOKENIZER.vocabulary,
    )
    with torch.no_grad():
        loss = batch_loss(transformer, batch, smoothing=0.1)
    assert total.pairs == len(SOURCES)
    assert total.tokens == loss.tokens
    assert -total.log_probability == pytest.approx(loss.negative_log_likelihood, rel=1e-6)
    assert total.perplexity == pytest.approx(math.exp(loss.negative_log_likelihood / loss.tokens), rel=1e-6)


def test_dropout_is_off_and_the_training_mode_is_restored():
    transformer = model(dropout=0.5)
    expected = scores(transformer)
    assert scores(transformer.train()) == expected
    assert transformer.training
    assert not transformer.eval().training
    scores(transformer)
    assert not transformer.training


def test_scores_stream():
    """The first scores of an endless corpus come after a few pairs, so memory is bounded."""
    read = []

    def endless():
        while True:
            read.append(1)
            yield "a b"

    results = score_pairs(model(), TOKENIZER, endless(), endless(), ahead=5)
    assert len([next(results) for _ in range(7)]) == 7
    assert len(read) <= 22


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
    with pytest.raises(DataError, match=r"target, line 2: \d+ tokens.* 8 "):
        scores(short, ["a", "a"], ["a", "a b c d e f g h i j k"])
