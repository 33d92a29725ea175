"""Scores of translations during validation."""

import pytest
import torch

from builders import small_gpt, small_model
from transduce.config import Vocabulary
from transduce.data.language_tags import with_language_tags
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.beam import beam_search
from transduce.runs import scoring
from transduce.runs.scoring import TranslationScorer

TEXTS = ["the cat sat on the mat", "a dog ran in the park today", "two birds sing in the old tree"]


@pytest.fixture
def tokenizer():
    return train_tokenizer(TEXTS, TEXTS, kind="char")


@pytest.fixture
def pairs(tmp_path, tokenizer):
    sizes = tokenizer.vocabulary.source, tokenizer.vocabulary.target
    with PairWriter(tmp_path, *sizes) as writer:
        writer.write(tokenizer.encode_source(TEXTS), tokenizer.encode_target(TEXTS))
    return Pairs.open(tmp_path)


def translate_perfectly(monkeypatch, tokenizer):
    """Replace the search: its outputs are its inputs, as in the data."""

    class Best:
        def __init__(self, row):
            self.tokens = [int(token) for token in row if token > tokenizer.vocabulary.eos]

    def search(model, source, limits, beam, prefix):
        assert (beam, prefix) == (1, [])
        assert len(limits) == len(source)
        return [[Best(row)] for row in source]

    monkeypatch.setattr(scoring, "beam_search", search)


def model_for(tokenizer):
    from transduce.models.build import build

    return build(small_model().config, tokenizer.vocabulary, seed=0).eval()


def test_references_in_the_output_score_a_hundred(monkeypatch, pairs, tokenizer):
    translate_perfectly(monkeypatch, tokenizer)
    scores = TranslationScorer(pairs, tokenizer).score(model_for(tokenizer))
    assert scores == {"bleu": pytest.approx(100), "chrf": pytest.approx(100)}


def test_a_limited_number_of_sentences_is_translated(monkeypatch, pairs, tokenizer):
    translate_perfectly(monkeypatch, tokenizer)
    assert len(TranslationScorer(pairs, tokenizer, sentences=2)._sources) == 2


def test_an_untrained_model_gets_scores_and_keeps_its_weights(pairs, tokenizer):
    model = model_for(tokenizer)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    state = torch.get_rng_state()
    scorer = TranslationScorer(pairs, tokenizer)
    first, second = scorer.score(model), scorer.score(model)
    assert first == second
    assert all(0 <= score < 50 for score in first.values())
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_language_model_cannot_be_scored(pairs, tokenizer):
    gpt = small_gpt(vocabulary=Vocabulary(source=9, target=9))
    with pytest.raises(TypeError, match="gpt"):
        TranslationScorer(pairs, tokenizer).score(gpt)


def test_targets_of_each_language_are_searched_on_their_own(monkeypatch, tmp_path, tokenizer):
    """The token of its language begins every target: it is read before the search, and no part of a text."""
    tagged = with_language_tags(tokenizer, ["de", "en"])
    special = tagged.special.model_copy(update={"source_prefix": [], "target_prefix": ["{target_language}"]})
    pair = TokenizerPair(tagged.source, tagged.target, (), special)
    with PairWriter(tmp_path, pair.vocabulary.source, pair.vocabulary.target) as writer:
        for code in ("de", "en", "de"):
            chosen = pair.for_languages(None, code)
            writer.write(chosen.encode_source(TEXTS), chosen.encode_target(TEXTS))
    searched = []

    def search(model, source, limits, beam, prefix):
        searched.append((prefix, len(source)))
        return beam_search(model, source, limits, beam=beam, prefix=prefix)

    monkeypatch.setattr(scoring, "beam_search", search)
    scorer = TranslationScorer(Pairs.open(tmp_path), pair)
    assert sorted(set(scorer._references)) == sorted(TEXTS)
    assert scorer.score(model_for(pair)).keys() == {"bleu", "chrf"}
    ids = {code: pair.target.id_of(f"<2{code}>") for code in ("de", "en")}
    assert searched == [([ids["de"]], 6), ([ids["en"]], 3)]
