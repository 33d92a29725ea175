"""The objective of translation: BPE-dropout, whose texts are longer; weights, by which pairs are repeated."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from builders import random_words, small_config
from transduce.config import TrainingConfig
from transduce.data.mixture import mixture_of
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer_training import train_tokenizer
from transduce.models.build import build
from transduce.training.objectives.translation import TranslationObjective


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Pairs of a few words, their tokenizer, and a model."""
    words = random_words(120)
    texts = [" ".join(words[place : place + 1 + place % 7]) for place in range(110)]
    tokenizer = train_tokenizer(texts, texts, kind="bpe", size=500)
    folder = tmp_path_factory.mktemp("pairs")
    with PairWriter(folder, tokenizer.source.size, tokenizer.target.size) as writer:
        writer.write_rows(tokenizer.source_rows(texts), tokenizer.target_rows(texts[::-1]))
    return Pairs.open(folder), tokenizer, build(small_config(), tokenizer.vocabulary, seed=0).train()


def area(batch):
    return max(batch.source.numel(), batch.target.numel())


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_batches_with_bpe_dropout_keep_to_max_tokens(made, p):
    pairs, tokenizer, model = made
    data = TranslationObjective(pairs, TrainingConfig(max_tokens=200, bpe_dropout=p), tokenizer)
    planned = [batch for step in data.steps(epoch=3) for batch in step]
    over = [area(data.read(model, batch, 3)) > 200 for batch in planned]
    assert any(over) == (p > 0)
    for batch in planned:
        microbatches = data.microbatches(model, batch, 3)
        assert sorted(index for microbatch in microbatches for index in microbatch) == sorted(batch)
        assert all(
            area(data.read(model, microbatch, 3)) <= 200 or len(microbatch) == 1
            for microbatch in microbatches
        )
        assert len(microbatches) == 1 or area(data.read(model, batch, 3)) > 200


def test_pairs_are_seen_as_often_as_their_weights_say(made):
    pairs, tokenizer, _ = made
    weighted = replace(pairs, mixture=mixture_of([50, 60], [3.0, 0.5]))
    data = TranslationObjective(weighted, TrainingConfig(max_tokens=40, batch_tokens=100), tokenizer)
    seen = [
        np.bincount([index for step in data.steps(epoch) for batch in step for index in batch], minlength=110)
        for epoch in range(4)
    ]
    for counts in seen:
        assert (counts[:50] == 3).all()
        assert counts[50:].sum() == 30
    assert (seen[0] + seen[1])[50:].tolist() == (seen[2] + seen[3])[50:].tolist() == [1] * 60


def test_microbatches_have_the_gradient_of_the_whole(made):
    pairs, tokenizer, model = made
    data = TranslationObjective(pairs, TrainingConfig(max_tokens=200, bpe_dropout=0.3), tokenizer)
    (batch,) = data.steps(epoch=0)[0]
    microbatches = data.microbatches(model, batch, 0)
    assert len(microbatches) > 1

    def gradient(parts):
        model.zero_grad()
        for part in parts:
            data.loss(model, part, 0).smoothed.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    one, other = gradient([batch]), gradient(microbatches)
    assert (one - other).norm() < 1e-4 * one.norm()


def test_the_length_of_a_pair_is_that_of_its_longer_side(made):
    pairs, _, _ = made
    lengths = zip(pairs.source.lengths, pairs.target.lengths, strict=True)
    assert TranslationObjective(pairs, TrainingConfig()).shortest == min(map(max, lengths))
