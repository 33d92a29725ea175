"""The tokenizer of an imported model's targets is the one that restores what the decoder produces."""

from dataclasses import replace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from builders import small_model
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.decoding.translation import Candidate, Translation
from transduce.interop.imported import Imported
from transduce.runs import target_tokenizer
from transduce.runs.target_tokenizer import restored, with_fitting_target

TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "c", "ab", "bc", "abc"]


def side(*pieces) -> SideTokenizer:
    backend = Tokenizer(models.Unigram([("<unk>", -9.0), *((piece, -1.0) for piece in pieces)], 0))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Fuse()
    return SideTokenizer(backend, TOKENS)


LETTERS, WHOLE = side("a", "b", "c"), side("a", "b", "c", "ab", "abc")


def chosen(monkeypatch, rows, own=LETTERS, other=WHOLE):
    """Choose for a decoder that produces these rows."""

    class Decoder:
        def __init__(self, *arguments):
            pass

        def __call__(self, lines):
            return [Translation("", [Candidate("", 0.0, [], [], row)]) for row in rows]

    monkeypatch.setattr(target_tokenizer, "Translator", Decoder)
    pair = TokenizerPair(own, own, special=SpecialTokens(pad="<pad>", bos="<s>", eos="</s>"))
    imported = Imported(small_model(), pair, ("before",), other_target=other)
    return with_fitting_target(imported), pair


def test_the_share_of_tokens_that_come_back():
    assert restored(LETTERS, [[4, 5, 6]]) == 1
    assert restored(LETTERS, [[7, 6]]) == 0.5
    assert restored(WHOLE, [[9], [4, 5]]) == pytest.approx(1 / 3)
    assert restored(WHOLE, []) == 0


def test_the_decoder_decides(monkeypatch):
    found, pair = chosen(monkeypatch, [[9], [7]])
    assert (found.tokenizer.source, found.tokenizer.target) == (pair.source, WHOLE)
    assert found.tokenizer.special == pair.special
    assert found.notes[0] == "before"
    assert "100%" in found.notes[1]
    found, pair = chosen(monkeypatch, [[4, 5, 6], [4]])
    assert found.tokenizer is pair
    assert found.notes == ("before",)


def test_a_tie_changes_nothing_and_bad_ones_are_named(monkeypatch):
    found, pair = chosen(monkeypatch, [[8], [8]])
    assert found.tokenizer is pair
    assert "warning" in found.notes[-1]
    found, _ = chosen(monkeypatch, [])  # nothing is known
    assert found.notes == ("before",)


def test_a_model_with_one_tokenizer_is_left_alone():
    pair = TokenizerPair(LETTERS, LETTERS, special=SpecialTokens(pad="<pad>", bos="<s>", eos="</s>"))
    imported = Imported(small_model(), pair)
    assert with_fitting_target(imported) is imported
    assert with_fitting_target(replace(imported, tokenizer=None)).tokenizer is None
