"""Target tokenizers from a vocabulary: few, frequent tokens; normalized and decoded as SentencePiece does."""

import pytest

from transduce.data.sentencepiece_file import (
    ModelType,
    NormalizerSpec,
    Piece,
    PieceType,
    SentencePieceModel,
    TrainerSpec,
)
from transduce.data.sentencepiece_writer import write_sentencepiece
from transduce.interop.vocabulary_tokenizer import lacks_tokens, vocabulary_tokenizer

SPECIAL = [
    Piece("<unk>", 0, PieceType.UNKNOWN),
    Piece("<s>", 0, PieceType.CONTROL),
    Piece("</s>", 0, PieceType.CONTROL),
]
SOURCE = [Piece(text, -float(n), PieceType.NORMAL) for n, text in enumerate(["▁", "x", "y", "xy", "▁xy"], 1)]
LETTERS = list("▁dogsthe")
TOKENS = ["</s>", "<unk>", "▁the", "▁do", "gs", "▁dog", "s", *LETTERS[:-4], "t", "h", "e", "<pad>"]


def source_model(kind=ModelType.UNIGRAM) -> SentencePieceModel:
    return SentencePieceModel(
        (*SPECIAL, *SOURCE), TrainerSpec(kind), NormalizerSpec(), has_denormalizer=False
    )


def made(tokens, kind=ModelType.UNIGRAM):
    unique = list(dict.fromkeys(tokens))
    return vocabulary_tokenizer(source_model(kind), unique, {"<pad>", "</s>"}, "made")


@pytest.mark.parametrize("kind", [ModelType.UNIGRAM, ModelType.BPE])
def test_few_tokens_and_among_as_many_the_frequent_ones(kind):
    assert made(TOKENS, kind).encode("the dogs").tokens == ["▁the", "▁do", "gs"]
    other = [token for token in TOKENS if token not in ("▁do", "gs")]
    assert made([*other, "gs", "▁do"], kind).encode("the  dogs ").tokens == ["▁the", "▁dog", "s"]


def test_texts_come_back_and_special_tokens_are_ordinary_text():
    tokenizer = made(TOKENS)
    encoding = tokenizer.encode("the dogs </s> <pad>")
    assert not {"</s>", "<pad>"} & set(encoding.tokens)
    assert tokenizer.decode(tokenizer.encode("dogs the do").ids) == "dogs the do"


def test_it_can_be_written_as_a_sentencepiece_model(tmp_path):
    write_sentencepiece(made(TOKENS), tmp_path / "target.spm")
    assert (tmp_path / "target.spm").stat().st_size


def test_a_vocabulary_of_two_languages_is_told_from_one_with_a_few_more_tokens():
    own = [piece.text for piece in (*SPECIAL, *SOURCE)] * 5
    assert lacks_tokens(source_model(), TOKENS)
    assert not lacks_tokens(source_model(), [*own, "<pad>", "<extra>"])
