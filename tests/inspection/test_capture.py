from dataclasses import replace

import pytest
import torch
from subjects import ENGLISH, GERMAN, inspection_of, model_for

from transduce.decoding.settings import SearchSettings
from transduce.decoding.trace import Branch
from transduce.decoding.translator import Translator
from transduce.errors import DataError, TransduceError
from transduce.inspection.capture import inspect, inspect_sentence, winning_branches
from transduce.nn.attention import SelfAttention, scaled_dot_product_attention


def test_weights_are_the_models_own_and_rows_add_up_to_one():
    model, tokenizer = model_for(ENGLISH, GERMAN)
    found = inspect_sentence(model, tokenizer, ENGLISH, GERMAN, extra_length=3)
    source = torch.tensor(tokenizer.encode_source([ENGLISH]))
    said = tokenizer.encode_target([GERMAN])[0]
    weights = model.attention(source, torch.tensor([[model.vocabulary.bos, *said[:-1]]]))
    for kind in ("encoder", "decoder", "encoder_decoder"):
        ours, theirs = getattr(found, kind), torch.stack(getattr(weights, kind))[:, 0]
        assert torch.equal(ours, theirs)
        assert torch.allclose(ours.sum(-1), torch.ones(ours.shape[:-1]), atol=1e-6)
    assert found.encoder.shape == (2, 4, len(found.source_tokens), len(found.source_tokens))
    assert found.encoder_decoder.shape == (2, 4, len(found.said_tokens), len(found.source_tokens))
    assert not found.decoder.triu(1).any()


def test_weights_equal_the_equation():
    """Of the first layer, from its own matrices, by hand."""
    model, tokenizer = model_for(ENGLISH, GERMAN)
    found = inspect_sentence(model, tokenizer, ENGLISH, GERMAN, extra_length=3)
    source = torch.tensor(tokenizer.encode_source([ENGLISH]))
    attention: SelfAttention = model.encoder.layers[0].self_attention
    with torch.no_grad():
        x = model.source_positions(model.source_embedding(source))
        query, key, value = (
            attention.split(part) for part in attention.query_key_value(x).split(attention.widths, -1)
        )
        expected = scaled_dot_product_attention(query, key, value).weights[0]
    assert torch.allclose(found.encoder[0], expected, atol=1e-6)


def test_probabilities_are_those_of_the_search():
    found = inspection_of(given=False)
    assert not found.target_was_given
    assert found.log_probabilities == pytest.approx(found.candidates[0].log_probabilities, abs=1e-4)
    assert found.target == found.candidates[0].text
    assert found.read_tokens == ["<s>", *found.said_tokens[:-1]]
    assert [one.score for one in found.candidates] == sorted(
        (c.score for c in found.candidates), reverse=True
    )


def test_the_winner_is_found_in_the_trace():
    found = inspection_of(given=False)
    way = [found.trace[step][place] for step, place in enumerate(found.winner)]
    assert [found.token_names[branch.token] for branch in way] == found.said_tokens
    assert [branch.log_probability for branch in way] == pytest.approx(found.log_probabilities, abs=1e-4)
    assert [branch.parent for branch in way[1:]] == found.winner[:-1]


def test_the_way_to_a_winner():
    trace = [
        [Branch(-1, 5, -1, -1, "kept"), Branch(-1, 6, -2, -2, "kept"), Branch(-1, 7, -3, -3, "pruned")],
        [Branch(1, 5, -1, -3, "kept"), Branch(0, 8, -3, -4, "kept"), Branch(0, 2, -4, -3, "ended")],
        [Branch(0, 2, -1, -2, "ended"), Branch(1, 2, -1, -3, "ended")],
    ]
    assert winning_branches(trace, [5, 8, 2]) == [0, 1, 1]
    assert winning_branches(trace, [6, 5, 2]) == [1, 0, 0]
    assert winning_branches(trace, [5, 2]) == [0, 2]
    assert winning_branches(trace, [9, 2]) == []
    assert winning_branches([], [2]) == []


def test_a_training_model_is_read_without_dropout_and_goes_on_training():
    model, tokenizer = model_for(ENGLISH, GERMAN, dropout=0.5)
    expected = inspect_sentence(model, tokenizer, ENGLISH, GERMAN, extra_length=2)
    model.train()
    found = inspect_sentence(model, tokenizer, ENGLISH, GERMAN, extra_length=2)
    assert model.training
    assert torch.equal(found.decoder, expected.decoder)


def test_what_cannot_be_inspected():
    model, tokenizer = model_for(ENGLISH, GERMAN, positions="learned", max_length=8)
    with pytest.raises(DataError, match=r"^the sentence is empty; give one with words in it$"):
        inspect_sentence(model, tokenizer, " ")
    with pytest.raises(
        DataError, match=r"^the sentence has \d+ tokens, but the model reads 8; give a shorter"
    ):
        inspect_sentence(model, tokenizer, ENGLISH * 3)
    with pytest.raises(DataError, match=r"^the target has \d+ tokens"):
        inspect_sentence(model, tokenizer, "the fox", GERMAN * 3)
    with pytest.raises(DataError, match=r"^the sentence is not UTF-8"):
        inspect_sentence(model, tokenizer, "the \udcff fox")


def test_a_translator_is_all_it_needs():
    model, tokenizer = model_for(ENGLISH, GERMAN)
    translator = Translator(model, tokenizer, SearchSettings(beam=2, extra_length=3))
    found = inspect(translator, ENGLISH)
    assert len(found.candidates) == 2
    assert found.target == next(translator.translate([ENGLISH])).text
    with pytest.raises(TransduceError, match="a str cannot be looked into"):
        inspect(replace(translator, model="no model"), ENGLISH)


def test_notebooks_get_a_frame():
    shown = inspection_of()._repr_html_()
    assert shown.startswith("<iframe")
    assert shown.count("<") == 2  # the frame's own tags: the page inside is escaped
    assert "&lt;!DOCTYPE html&gt;" in shown
