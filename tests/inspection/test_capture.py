import math
from dataclasses import replace

import pytest
import torch
from subjects import ENGLISH, GERMAN, inspection_of, look, model_for, rnn_inspection

import transduce
from transduce.decoding.glossary import Glossary
from transduce.decoding.settings import SearchSettings
from transduce.decoding.trace import Branch
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError, TransduceError
from transduce.inspection.capture import best_path, inspect
from transduce.nn.attention import scaled_dot_product_attention


def test_weights_equal_the_models_and_rows_sum_to_one():
    model, tokenizer = model_for(ENGLISH, GERMAN)
    found = look(model, tokenizer, ENGLISH, GERMAN, extra_length=3)
    source = torch.tensor(tokenizer.encode_source([ENGLISH]))
    said = tokenizer.encode_target([GERMAN])[0]
    weights = model.attention(source, torch.tensor([[model.vocabulary.bos, *said[:-1]]]))
    for kind in ("encoder", "decoder", "encoder_decoder"):
        ours, theirs = getattr(found, kind), torch.stack(getattr(weights, kind))[:, 0]
        assert torch.equal(ours, theirs)
        assert torch.allclose(ours.sum(-1), torch.ones(ours.shape[:-1]), atol=1e-6)
    assert found.encoder.shape == (2, 4, len(found.source_tokens), len(found.source_tokens))
    assert found.encoder_decoder.shape == (2, 4, len(found.target_tokens), len(found.source_tokens))
    assert not found.decoder.triu(1).any()


def test_weights_equal_the_equation():
    """Compute the first layer's weights from its matrices."""
    model, tokenizer = model_for(ENGLISH, GERMAN)
    found = look(model, tokenizer, ENGLISH, GERMAN, extra_length=3)
    source = torch.tensor(tokenizer.encode_source([ENGLISH]))
    attention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        x = model.source_positions(model.source_embedding(source))
        parts = attention.query_key_value(x).split(attention.widths, -1)
        query, key, value = map(attention.split_heads, parts)
        expected = scaled_dot_product_attention(query, key, value).weights[0]
    assert torch.allclose(found.encoder[0], expected, atol=1e-6)


def test_probabilities_are_those_of_the_search():
    found = inspection_of(given=False)
    assert not found.target_was_given
    assert found.log_probabilities == pytest.approx(found.candidates[0].log_probabilities, abs=1e-4)
    assert found.target == found.candidates[0].text
    assert found.input_tokens == ["<s>", *found.target_tokens[:-1]]
    assert [one.score for one in found.candidates] == sorted(
        (c.score for c in found.candidates), reverse=True
    )


def test_the_best_path_leads_to_the_best_hypothesis():
    found = inspection_of(given=False)
    way = [found.trace[step][place] for step, place in enumerate(found.best_path)]
    assert [found.token_names[branch.token] for branch in way] == found.target_tokens
    assert [branch.log_probability for branch in way] == pytest.approx(found.log_probabilities, abs=1e-4)
    assert [branch.parent for branch in way[1:]] == found.best_path[:-1]


def test_best_path_of_a_small_trace():
    trace = [
        [Branch(-1, 5, -1, -1, "kept"), Branch(-1, 6, -2, -2, "kept"), Branch(-1, 7, -3, -3, "pruned")],
        [Branch(1, 5, -1, -3, "kept"), Branch(0, 8, -3, -4, "kept"), Branch(0, 2, -4, -3, "ended")],
        [Branch(0, 2, -1, -2, "ended"), Branch(1, 2, -1, -3, "ended")],
    ]
    assert best_path(trace, [5, 8, 2]) == [0, 1, 1]
    assert best_path(trace, [6, 5, 2]) == [1, 0, 0]
    assert best_path(trace, [5, 2]) == [0, 2]
    assert best_path(trace, [9, 2]) == []
    assert best_path([], [2]) == []


def test_dropout_is_off_and_the_training_mode_is_restored():
    model, tokenizer = model_for(ENGLISH, GERMAN, dropout=0.5)
    expected = look(model, tokenizer, ENGLISH, GERMAN, extra_length=2)
    model.train()
    found = look(model, tokenizer, ENGLISH, GERMAN, extra_length=2)
    assert model.training
    assert torch.equal(found.decoder, expected.decoder)


@pytest.mark.parametrize("attention", ["additive", "multiplicative", "none"])
def test_a_recurrent_network_has_at_most_encoder_decoder_attention(attention):
    found = rnn_inspection(attention)
    target, source = len(found.target_tokens), len(found.source_tokens)
    assert found.encoder.shape == (0, 0, source, source)
    assert found.decoder.shape == (0, 0, target, target)
    count = int(attention != "none")
    assert found.encoder_decoder.shape == (count, count, target, source)
    assert torch.allclose(found.encoder_decoder.sum(-1), torch.ones(count, count, target))
    assert found.trace


def test_texts_that_cannot_be_inspected():
    model, tokenizer = model_for(ENGLISH, GERMAN, positions="learned", max_length=8)
    for texts, facts in [
        ((" ",), "the sentence is empty"),
        ((ENGLISH * 3,), r"the sentence has \d+ tokens.* 8"),
        (("the fox", GERMAN * 3), r"the target has \d+ tokens.* 8"),
        (("the fox", ""), "the target is empty"),
        (("the \udcff fox",), "the sentence .*UTF-8"),
    ]:
        with pytest.raises(DataError, match=facts):
            look(model, tokenizer, *texts)


def test_very_long_texts_are_refused():
    model, tokenizer = model_for(ENGLISH, GERMAN)
    with pytest.raises(DataError, match=r"the sentence has [\d,]+ tokens.* 512"):
        look(model, tokenizer, "the fox " * 300)


def test_repr_is_short_and_has_no_tensors():
    found = inspection_of()
    text = repr(found)
    assert len(text) < 300
    assert ENGLISH in text
    assert GERMAN in text
    assert "tensor" not in text


def test_search_settings_are_the_translators():
    model, tokenizer = model_for(ENGLISH, GERMAN)
    translator = Translator(model, tokenizer, SearchSettings(beam=2, extra_length=3))
    found = inspect(translator, ENGLISH)
    assert len(found.candidates) == 2
    assert found.target == translator(ENGLISH).text
    with pytest.raises(TransduceError, match="a str cannot be inspected"):
        inspect(replace(translator, model="no model"), ENGLISH)


SEARCHES = [
    {"no_repeat_ngram": 1},
    {"max_length": 5},
    {"min_length": 12, "extra_length": 20},
    {"penalty": "plain", "length_penalty": 2.0},
    {"coverage_penalty": 3.0},
    {"beam": 1},
    {"nbest": 5},
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "rest", [{}, {"prefix": "braune springt"}, {"glossary": Glossary(always=("schnelle",))}]
)
def test_the_search_equals_the_translators(search, rest):
    model, tokenizer = model_for(ENGLISH, GERMAN)
    settings = SearchSettings(**{"beam": 3, "extra_length": 4, **search})
    translator = Translator(model, tokenizer, settings, **rest)
    found, expected = inspect(translator, ENGLISH), translator(ENGLISH)
    assert found.target == expected.text
    assert len(found.candidates) >= len(expected.candidates)
    for ours, theirs in zip(found.candidates, expected.candidates, strict=False):
        assert (ours.tokens, ours.score) == (theirs.tokens, theirs.score)
    way = [found.trace[step][place] for step, place in enumerate(found.best_path)]
    assert [found.token_names[branch.token] for branch in way] == found.target_tokens
    assert all(math.isfinite(branch.score) for step in found.trace for branch in step)
    assert all(
        branch.parent < len(found.trace[step])
        for step, after in enumerate(found.trace[1:])
        for branch in after
    )


def test_an_int8_model_is_inspected_layer_by_layer(tmp_path):
    model, tokenizer = model_for(ENGLISH, GERMAN)
    transduce.save(model, tmp_path / "model", tokenizer)
    translator = transduce.Translator.load(tmp_path / "model", beam=2, extra_length=3, precision="int8")
    found = transduce.inspect(translator, ENGLISH, GERMAN)
    exact = look(model, tokenizer, ENGLISH, GERMAN, beam=2, extra_length=3)
    assert found.encoder.shape == exact.encoder.shape
    assert (found.encoder - exact.encoder).abs().mean() < 0.05  # rounding
    assert translator(ENGLISH).text == transduce.inspect(translator, ENGLISH).target


@pytest.mark.parametrize("search", [{"sample": True}, {"beam": 4, "diverse_groups": 2}])
def test_a_search_without_a_trace_is_refused(search):
    model, tokenizer = model_for(ENGLISH, GERMAN)
    with pytest.raises(ConfigError, match="--sample"):
        inspect(Translator(model, tokenizer, SearchSettings(**search)), ENGLISH)


def test_a_search_without_a_result():
    model, tokenizer = model_for(ENGLISH, GERMAN)
    settings = SearchSettings(no_repeat_ngram=1, min_length=400)  # more tokens than the vocabulary has
    with pytest.raises(DataError, match="no translation"):
        inspect(Translator(model, tokenizer, settings), ENGLISH)


def test_a_loaded_translator_can_be_inspected(tmp_path):
    model, tokenizer = model_for(ENGLISH, GERMAN)
    transduce.save(model, tmp_path / "model", tokenizer)
    translator = transduce.Translator.load(tmp_path / "model", beam=2, extra_length=3, precision="float32")
    found = transduce.inspect(translator, ENGLISH, GERMAN)
    assert found.target == GERMAN
    assert found.data() == look(model, tokenizer, ENGLISH, GERMAN, beam=2, extra_length=3).data()
    assert transduce.inspect(tmp_path / "model", ENGLISH, GERMAN).target == GERMAN


def test_notebooks_show_a_frame():
    shown = inspection_of()._repr_html_()
    assert shown.startswith("<iframe")
    assert shown.count("<") == 2  # the frame's own tags: the page inside is escaped
    assert "&lt;!DOCTYPE html&gt;" in shown
