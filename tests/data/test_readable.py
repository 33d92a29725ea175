import pytest

from transduce.data.readable import has_words, readable
from transduce.data.tokenizer import load_side_tokenizer
from transduce.data.tokenizer_training import train_side_tokenizer


def shown(kind, text, size=600):
    side = train_side_tokenizer(["the quick brown fox naïve", "젊은 남자"] * 2, kind=kind, size=size)
    (ids,) = side.encode([text])
    return readable(side, ids)


def test_pieces_of_words():
    assert shown("bpe", "the fox thefox")[:3] == ["the", "fox", "the"]
    assert shown("bpe", "the fox thefox")[3].startswith("·f")
    assert shown("wordpiece", "the thequick")[:2] == ["the", "the"]
    assert shown("wordpiece", "the thequick")[2].startswith("·q")
    assert shown("bpe", "naïve 젊은") == ["naïve", "젊은"]


def test_characters_and_bytes_have_no_words():
    assert shown("char", "a fox€") == ["a", "␣", "f", "o", "x", "⟨E2⟩", "⟨82⟩", "⟨AC⟩"]
    assert shown("byte", "a é") == ["a", "␣", "⟨C3⟩", "⟨A9⟩"]
    assert not has_words(train_side_tokenizer(["a"], kind="byte", size=300))
    assert has_words(train_side_tokenizer(["a"], kind="bpe", size=300))


def test_parts_of_a_character_are_numbers():
    assert shown("bpe", "𝄞")[1:] == ["·⟨F0⟩", "·⟨9D⟩", "·⟨84⟩", "·⟨9E⟩"]


def test_several_bytes_of_a_character_are_one_token():
    # 가 and 각 share their first two bytes, EA B0, which become a token.
    side = train_side_tokenizer(["가각간갇갈 감갑값갓갔"] * 5, kind="bpe", size=262)
    tokens = readable(side, side.encode(["갛"])[0])
    assert "⟨EA B0⟩" in "".join(tokens)
    assert not any("␣B" in token for token in tokens)


def test_symbols():
    side = train_side_tokenizer(["a̠ b t͡ʃ", "b"], kind="symbols", size=300)
    assert readable(side, side.encode(["t͡ʃ a̠"])[0]) == ["t͡ʃ", "a̠"]
    assert readable(side, side.encode(["b xy"])[0]) == ["b", "␣", "·x", "·y"]


def test_special_tokens_stay_what_they_are_and_text_that_looks_like_them_does_not():
    side = train_side_tokenizer(["a b"], kind="bpe", size=300)
    assert readable(side, [1, 2]) == ["<s>", "</s>"]
    assert readable(side, side.encode(["</s>"])[0])[0] != "</s>"


@pytest.mark.parametrize("text", ["the quick fox", "thefox naïve", "x y"])
def test_words_can_be_put_together_again(text):
    words = shown("bpe", text)
    joined = "".join(word[1:] if word.startswith("·") else f" {word}" for word in words)
    assert " ".join(joined.replace("␣", " ").split()) == text


def test_the_vocabulary_of_bert(shared):
    side = load_side_tokenizer(shared / "data" / "bert-base-uncased" / "vocab.txt")
    (ids,) = side.encode(["Transduction works"])
    assert readable(side, ids) == ["trans", "·duction", "works"]
