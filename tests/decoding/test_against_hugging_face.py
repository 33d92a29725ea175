"""Beam search and Hugging Face's ``generate`` find the same tokens with the same scores."""

from collections import Counter

import pytest
import torch

from builders import random_tokens, reversal, reversing_model, small_model
from peers import hugging_face_search, hugging_face_twin
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import plain_penalty

pytest.importorskip("transformers")

# With each beam, ``generate`` is greedy decoding: the first ``eos`` ends it, and there is no penalty.
SEARCHES = [(1, alpha) for alpha in (0.0, 1.0, 2.0)]
SEARCHES += [(beam, alpha) for beam in (2, 3, 4, 5) for alpha in (-0.5, 0.0, 0.6, 1.0, 2.0)]


def frequently_ending_model(seed, **changes):
    """A random model with sharp distributions, whose ``eos`` is a frequent token, so that targets end."""
    model = small_model(seed=seed, share="none", **changes)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2)
        model.output.weight.normal_(std=0.7, generator=generator)
    results = beam_search(model, random_tokens(24, 6, seed=seed), [6] * 24, beam=1)
    counts = Counter(token for (best,) in results for token in best.tokens)
    model.vocabulary = model.vocabulary.model_copy(update={"eos": counts.most_common(3)[-1][0]})
    return model


def compare(model, twin, source, max_length, beam, alpha):
    """Compare all hypotheses; return the lengths of those that ended, and how many were cut off."""
    ours = beam_search(model, source, [max_length] * len(source), beam=beam, penalty=plain_penalty(alpha))
    theirs = hugging_face_search(twin, source, max_length, beam, alpha)
    lengths, cut = [], 0
    for hypotheses, others in zip(ours, theirs, strict=True):
        assert [each.tokens for each in hypotheses] == [tokens for tokens, _ in others]
        for each, (_, score) in zip(hypotheses, others, strict=True):
            assert score is None or each.score == pytest.approx(score, abs=1e-4)
            if len(each.log_probabilities) > len(each.tokens):
                lengths.append(len(each.tokens))
            else:
                cut += 1
    return lengths, cut


@pytest.mark.parametrize(("seed", "activation"), [(0, "relu"), (1, "gelu"), (2, "relu")])
def test_random_models(seed, activation):
    """At the maximum length, both cut running hypotheses off and score them by their length."""
    model = frequently_ending_model(seed, activation=activation)
    twin = hugging_face_twin(model)
    source = random_tokens(20, 6, seed=seed + 1)
    source[:5, 4:] = model.vocabulary.pad
    lengths, cut = [], 0
    for beam, alpha in SEARCHES:
        ended, unended = compare(model, twin, source, 11, beam, alpha)
        lengths += ended
        cut += unended
    assert cut > 20
    assert len(lengths) > 20
    assert len(set(lengths)) > 3


def test_each_sentence_has_its_own_maximum_length():
    """``generate`` has each limit per batch, so it gets each sentence at a time."""
    model = frequently_ending_model(3)
    twin = hugging_face_twin(model)
    source, limits = random_tokens(8, 6, seed=4), [1, 9, 2, 3, 9, 5, 1, 7]
    ours = beam_search(model, source, limits, beam=3, penalty=plain_penalty(0.6))
    for row, limit in enumerate(limits):
        (theirs,) = hugging_face_search(twin, source[row : row + 1], limit, 3, 0.6)
        assert [each.tokens for each in ours[row]] == [tokens for tokens, _ in theirs]


def test_a_trained_model():
    model = reversing_model(steps=150)
    twin = hugging_face_twin(model)
    source, _ = reversal(30, torch.Generator().manual_seed(1))
    for beam, alpha in SEARCHES:
        lengths, _ = compare(model, twin, source, 12, beam, alpha)
        assert len(set(lengths)) > 3
