"""Languages of corpora, and their tags in a tokenizer."""

import pytest

from transduce.data.language_tags import (
    check_code,
    directions_for_validation,
    directions_of,
    with_defaults,
    with_language_tags,
    with_languages,
)
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.resegment import Resegmentation
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import ConfigError, DataError

TEXT = ["the dog sleeps in the sun", "the cats sleep in the shade"] * 3
THERE, BACK = ("en", "de"), ("de", "en")


def test_one_language_for_all_files_or_one_for_each():
    assert directions_of([], [], 3) == ()
    assert directions_of(["en"], ["de"], 2) == (THERE, THERE)
    assert directions_of(["en", "de"], ["de", "en"], 2) == (THERE, BACK)
    assert directions_of(["en"], ["de", "fr"], 2) == (THERE, ("en", "fr"))
    assert directions_of([], ["de"], 1) == ((None, "de"),)
    with pytest.raises(ConfigError, match=r"--target-lang was given 2 times.*3 training files"):
        directions_of(["en"], ["de", "fr"], 3)


def test_validation_files_follow_the_training_files():
    assert directions_for_validation([], 2) == ()
    assert directions_for_validation([THERE, THERE], 1) == (THERE,)
    assert directions_for_validation([THERE, BACK], 2) == (THERE, BACK)
    assert directions_for_validation([THERE, THERE, BACK], 2) == (THERE, BACK)
    assert directions_for_validation([BACK, THERE, BACK], 3) == (BACK, THERE, BACK)
    with pytest.raises(ConfigError, match=r"1 validation files.*2 directions"):
        directions_for_validation([THERE, BACK], 1)


@pytest.mark.parametrize("code", ["", "d e", "<2de>", "de>", "{target_language}", "-de", "x" * 36])
def test_codes_that_are_none(code):
    with pytest.raises(ConfigError, match="code"):
        check_code(code)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char", "byte", "symbols"])
@pytest.mark.parametrize("joint", [True, False])
def test_the_tag_of_the_target_language_is_before_the_source(kind, joint, tmp_path):
    plain = train_tokenizer(TEXT, TEXT, kind=kind, size=600, joint=joint)
    tagged = with_language_tags(plain, ["en", "de", "pt-BR"])
    assert tagged.vocabulary.source == plain.vocabulary.source + 3
    assert tagged.joint == joint
    tagged.save(tmp_path)
    for tokenizer in (tagged, TokenizerPair.load(tmp_path)):
        assert tokenizer.is_like(tagged)
        assert tokenizer.source.native
        for code in ("de", "pt-BR"):
            chosen = tokenizer.for_languages(None, code)
            (ids,) = chosen.encode_source(TEXT[:1])
            assert ids[1:] == plain.encode_source(TEXT[:1])[0]
            assert tokenizer.source.token_at(ids[0]) == f"<2{code}>"
            assert chosen.encode_target(TEXT[:1]) == plain.encode_target(TEXT[:1])
        with pytest.raises(DataError, match=r"(?s)target language.*--target-lang: de, en, pt-BR"):
            tokenizer.encode_source(TEXT)


def test_a_tag_in_a_text_is_text():
    tagged = with_language_tags(train_tokenizer(TEXT, TEXT, size=300), ["de"]).for_languages(None, "de")
    (ids,) = tagged.encode_source(["<2de> dog"])
    assert ids.count(ids[0]) == 1
    assert tagged.source.decode(ids) == "<2de> dog"


def test_languages_are_chosen_where_all_directions_agree():
    tagged = with_language_tags(train_tokenizer(TEXT, TEXT, size=300), ["en", "de", "fr"])
    for directions, expected in (
        ([THERE, THERE], THERE),
        ([THERE, BACK], (None, None)),
        ([THERE, ("en", "fr")], ("en", None)),
        ([(None, "de")], (None, "de")),
    ):
        special = with_defaults(tagged, directions).special
        assert (special.source_language, special.target_language) == expected
    chosen = tagged.for_languages(*THERE)
    assert with_defaults(chosen, []) is chosen
    assert with_defaults(chosen, [BACK, THERE]).special.target_language is None


def test_bpe_dropout_keeps_the_tokens_around_a_text(tmp_path):
    tagged = with_language_tags(train_tokenizer(TEXT, TEXT, size=330), ["en", "de"])
    special = SpecialTokens(
        **{**tagged.special.model_dump(), "source_suffix": ["</s>", "{source_language}"]},
    ).model_copy(update={"target_prefix": ["{target_language}"]})
    tokenizer = TokenizerPair(tagged.source, tagged.target, (), special)
    sizes = tokenizer.vocabulary.source, tokenizer.vocabulary.target
    with PairWriter(tmp_path, *sizes) as writer:
        for direction in (THERE, BACK):
            chosen = tokenizer.for_languages(*direction)
            writer.write(chosen.encode_source(TEXT[:2]), chosen.encode_target(TEXT[:2]))
    pairs = Pairs.open(tmp_path)
    dropout = Resegmentation(pairs, tokenizer, 0.6, seed=1)
    for index in range(4):
        for name, rows, after in (("source", pairs.source, 2), ("target", pairs.target, 1)):
            old, new = rows[index].tolist(), dropout.read(name, index, 0).tolist()
            assert new != old
            assert (new[0], new[-after:]) == (old[0], old[-after:])
            side = tokenizer.source
            assert side.decode(new) == side.decode(old) == TEXT[index % 2]
            assert dropout.read(name, index, 0, limit=len(new)).tolist() == new
            assert dropout.read(name, index, 0, limit=len(new) - 1).tolist() == old


def test_one_direction_is_recorded_without_a_tag(tmp_path):
    plain = train_tokenizer(TEXT, TEXT, size=300)
    known = with_languages(plain, [THERE, THERE])
    assert known.vocabulary == plain.vocabulary
    assert not known.has_language_tokens
    known.save(tmp_path)
    for tokenizer in (known, TokenizerPair.load(tmp_path)):
        assert tokenizer.directions == [THERE]
        assert tokenizer.encode_source(TEXT) == plain.encode_source(TEXT)
        assert tokenizer.encode_target(TEXT) == plain.encode_target(TEXT)
    assert with_languages(plain, []) is plain
    assert with_languages(plain, [(None, "de")]).directions == [(None, "de")]
    several = with_languages(plain, [THERE, BACK])
    assert several.special.languages == {"de": "<2de>", "en": "<2en>"}
    assert set(several.directions) == {THERE, BACK}


def test_a_direction_can_be_replaced_where_no_token_tells_it():
    plain = train_tokenizer(TEXT, TEXT, size=300)
    known = with_defaults(plain, [THERE])
    assert known.directions == [THERE]
    assert with_defaults(known, [("nl", "de")]).directions == [("nl", "de")]
    assert with_defaults(known, [(None, "fr")]).directions == [("en", "fr")]


def test_a_model_of_one_direction_accepts_its_own_languages_alone():
    known = train_tokenizer(TEXT, TEXT, size=300).with_direction(*THERE)
    for given in (THERE, ("en", None), (None, "de"), (None, None)):
        assert known.for_languages(*given).directions == [THERE]
    for given, facts in (
        (BACK, "source language is en.*'de'"),
        (("en", "fr"), "target language is de.*'fr'"),
    ):
        with pytest.raises(DataError, match=facts):
            known.for_languages(*given)
    half = train_tokenizer(TEXT, TEXT, size=300).with_direction(None, "de")
    assert half.for_languages(None, "de").directions == [(None, "de")]
    with pytest.raises(DataError, match=r"source language is not known.*'en'"):
        half.for_languages(*THERE)


def test_languages_that_no_token_tells_change_no_ids():
    plain = train_tokenizer(TEXT, TEXT, size=300)
    known = plain.with_direction(*THERE)
    assert plain.is_like(known)
    assert known.is_like(plain.with_direction(*BACK))
    bare = TokenizerPair(
        known.source, known.target, (), known.special.model_copy(update={"source_suffix": []})
    )
    assert not known.is_like(bare)
    tagged = with_language_tags(plain, ["en", "de"])
    assert not tagged.is_like(plain)
    assert not tagged.for_languages(*THERE).is_like(tagged.for_languages(*BACK))


def test_a_source_that_no_token_tells_needs_no_token():
    tokens = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "languages": {"de": "<2de>", "fr": "<2fr>"}}
    special = SpecialTokens(**tokens, source_prefix=["{target_language}"], source_language="en")
    assert special.directions == [("en", "de"), ("en", "fr")]
    with pytest.raises(ConfigError, match="'en' has no token"):
        SpecialTokens(**tokens, source_suffix=["{source_language}"], source_language="en")
    with pytest.raises(ConfigError, match="'en' has no token"):
        SpecialTokens(**tokens, source_prefix=["{target_language}"], target_language="en")
