"""Models with several languages: their tokens are read before every search, and are no part of a text."""

from dataclasses import replace

import pytest
import torch

from builders import small_config
from transduce.config import Vocabulary
from transduce.data.corpus import Corpus
from transduce.data.language_tags import with_language_tags
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.beam import beam_search
from transduce.decoding.glossary import Glossary
from transduce.decoding.penalties import plain_penalty
from transduce.decoding.rules import prefix
from transduce.decoding.settings import SearchSettings
from transduce.decoding.shortlist_learning import learn_shortlist
from transduce.decoding.translator import Translator
from transduce.engine.native import engine
from transduce.engine.precision import for_decoding
from transduce.engine.running_search import RunningSearch
from transduce.errors import DataError
from transduce.evaluation.score import score_pairs
from transduce.inspection.capture import inspect
from transduce.models.build import build

TEXT = ["the quick brown fox", "jumps over the lazy dog"]
LINES = ["the fox", "", "a dog jumps over"]
FIRST, SECOND = "<2de>", "<2en>"


@pytest.fixture(scope="module")
def tokenizer():
    """As in NLLB: the source ends with its language's token, the target begins with its own."""
    tagged = with_language_tags(train_tokenizer(TEXT, TEXT, kind="char"), ["de", "en"])
    special = SpecialTokens(
        pad="<pad>",
        bos="<s>",
        eos="</s>",
        source_suffix=["</s>", "{source_language}"],
        target_prefix=["{target_language}"],
        languages={"de": FIRST, "en": SECOND},
    )
    return TokenizerPair(tagged.source, tagged.target, (), special)


@pytest.fixture(scope="module")
def model(tokenizer):
    return build(small_config(d_model=32, d_ff=48, heads=2), tokenizer.vocabulary, seed=1).eval()


def translator(model, tokenizer, *, into="de", **options):
    others = {name: options.pop(name) for name in ("prefix", "glossary", "shortlist") if name in options}
    settings = SearchSettings(extra_length=6, **options)
    return Translator(
        model, tokenizer, settings, source_language="en", target_language=into, alignments=True, **others
    )


SEARCHES = [
    {},
    {"beam": 1},
    {"nbest": 3},
    {"sample": True, "nbest": 2},
    {"diverse_groups": 2},
    {"coverage_penalty": 0.2},
    {"min_length": 3, "no_repeat_ngram": 2},
    {"prefix": "the"},
    {"glossary": Glossary((), ("dog",))},
]


@pytest.mark.parametrize("options", SEARCHES)
@pytest.mark.parametrize("is_packed", [True, False])
def test_every_search_reads_the_language_and_writes_text_alone(model, tokenizer, options, is_packed):
    """The log-probabilities of a candidate are those that the model has after the token of the language."""
    searched = for_decoding(model, "float32", "cpu") if is_packed else model
    found = translator(searched, tokenizer, **options)(LINES)
    assert not found[1].candidates
    tag, bos = tokenizer.target.id_of(FIRST), tokenizer.vocabulary.bos
    for line in (found[0], found[2]):
        assert line.source_tokens[-1] == SECOND
        for candidate in line.candidates:
            assert FIRST not in candidate.text
            assert len(candidate.alignment) == len(candidate.tokens) == len(candidate.ids)
            source = torch.tensor(tokenizer.for_languages("en", "de").encode_source([line.source]))
            labels = [*candidate.ids, tokenizer.vocabulary.eos][: len(candidate.log_probabilities)]
            with torch.no_grad():
                logits = model(source, torch.tensor([[bos, tag, *labels[:-1]]]))[0, 1:]
            expected = logits.log_softmax(-1)[range(len(labels)), labels].tolist()
            assert candidate.log_probabilities == pytest.approx(expected, abs=1e-3)
            if "prefix" in options:
                assert candidate.text.startswith("the")
            if "glossary" in options:
                assert "dog" in candidate.text


def test_languages_differ(model, tokenizer):
    into = {code: translator(model, tokenizer, into=code)(LINES[0]).candidates[0] for code in ("de", "en")}
    assert into["de"].log_probabilities != into["en"].log_probabilities


@pytest.mark.skipif(engine() is None, reason="the engine was not compiled")
@pytest.mark.parametrize("beam", [1, 4])
def test_the_engine_searches_with_languages(model, tokenizer, beam, monkeypatch):
    calls, run = [], RunningSearch.run
    monkeypatch.setattr(RunningSearch, "run", lambda search: calls.append(1) or run(search))
    packed = for_decoding(model, "float32", "cpu")
    found, oracle = (translator(each, tokenizer, beam=beam)(LINES) for each in (packed, model))
    assert calls == [1]
    assert [each.text for each in found] == [each.text for each in oracle]
    for ours, theirs in zip(found, oracle, strict=True):
        scores = [one.score for one in theirs.candidates]
        assert [one.score for one in ours.candidates] == pytest.approx(scores, abs=1e-4)


def test_equal_to_a_search_that_is_forced_to_choose_the_language(model, tokenizer):
    """Without a length penalty, the probability of a forced token is the same for all hypotheses."""
    chosen = tokenizer.for_languages("en", "de")
    (source,) = chosen.encode_source(["the fox jumps"])
    tag, none = chosen.target_prefix, plain_penalty(0)
    found, forced = (
        beam_search(model, torch.tensor([source]), limit, beam=3, penalty=none, **options)[0]
        for limit, options in ((8, {"prefix": tag}), (9, {"rules": [prefix([tag])]}))
    )
    assert [tag + each.tokens for each in found] == [each.tokens for each in forced]
    for ours, theirs in zip(found, forced, strict=True):
        assert ours.log_probabilities == pytest.approx(theirs.log_probabilities[1:], abs=1e-5)


def test_a_shortlist_needs_no_tokens_of_languages(model, tokenizer, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\t{line}\n" for line in TEXT))
    chosen = tokenizer.for_languages("en", "de")
    shortlist = learn_shortlist(Corpus.of([], [], [path], "training"), chosen, frequent=5, aligned=3)
    tag = tokenizer.target.id_of(FIRST)
    assert tag not in {*shortlist.frequent.tolist(), *shortlist.tokens.tolist()}
    assert translator(model, tokenizer, shortlist=shortlist)(LINES)[0].candidates[0].ids


def test_scores_are_those_of_the_search(model, tokenizer):
    chosen = translator(model, tokenizer, prefix="the lazy dog", max_length=12)
    (best,) = chosen(LINES[2]).candidates
    (score,) = score_pairs(model, chosen.tokenizer, [LINES[2]], ["the lazy dog"])
    assert best.text.startswith("the lazy dog")
    assert score.tokens == best.tokens[:12]
    assert score.log_probabilities[:12] == pytest.approx(best.log_probabilities[:12], abs=1e-4)
    assert len(score.log_probabilities) == 13


def test_an_inspection_shows_the_tokens_of_languages(model, tokenizer):
    seen = inspect(translator(model, tokenizer), LINES[0])
    assert seen.target_tokens[0] == seen.input_tokens[1] == FIRST
    assert seen.source_tokens[-1] == SECOND
    assert FIRST not in seen.target
    assert seen.best_path
    with pytest.raises(DataError, match="empty"):
        inspect(translator(model, tokenizer), " ")


def test_targets_leave_room_for_the_tokens_of_languages(tokenizer):
    model = build(small_config(positions="learned", max_length=8), tokenizer.vocabulary, seed=1).eval()
    for each in (model, for_decoding(model, "float32", "cpu")):
        for candidate in translator(each, tokenizer)("dog").candidates:
            assert len(candidate.log_probabilities) <= 7


def test_errors_name_the_languages(model, tokenizer):
    with pytest.raises(DataError, match=r"(?s)fr.*de, en"):
        translator(model, tokenizer, into="fr")
    with pytest.raises(DataError, match=r"(?s)source language.*--source-lang: de, en"):
        Translator(model, tokenizer, target_language="de")
    plain = train_tokenizer(TEXT, TEXT, kind="char")
    with pytest.raises(DataError, match="no languages"):
        Translator(model, plain, target_language="de")


def test_a_translator_can_be_changed(model, tokenizer):
    first = translator(model, tokenizer)
    assert replace(first, prefix="a").tokenizer.special == first.tokenizer.special
    assert replace(first, target_language="en").tokenizer.special.target_language == "en"


def test_pieces_of_one_token_are_translated():
    """A source without suffix is not blank if it has one token."""
    plain = train_tokenizer(TEXT, TEXT, kind="char")
    special = SpecialTokens(pad="<pad>", bos="<s>", eos="</s>", source_suffix=[])
    tokenizer = TokenizerPair(plain.source, plain.target, (), special)
    model = build(small_config(), Vocabulary(**plain.vocabulary.model_dump()), seed=1).eval()
    found = Translator(model, tokenizer, SearchSettings(min_length=2))(["q", ""])
    assert found[0].candidates
    assert not found[1].candidates


def test_a_model_of_one_direction():
    plain = train_tokenizer(TEXT, TEXT, kind="char")
    small = build(small_config(), plain.vocabulary, seed=1).eval()
    known = plain.with_direction("de", "en")
    expected = [each.text for each in Translator(small, plain)(LINES)]
    for languages in ({}, {"source_language": "de", "target_language": "en"}, {"target_language": "en"}):
        assert [each.text for each in Translator(small, known, **languages)(LINES)] == expected
    for languages in ({"source_language": "en"}, {"target_language": "fr"}):
        with pytest.raises(DataError, match="language is") as caught:
            Translator(small, known, **languages)
        assert "\n" not in caught.value.problem
