"""A model of masked text at work: what it reads of a line."""

import pytest
import torch

from builders import small_bert
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.wordpiece import wordpiece_of
from transduce.errors import DataError
from transduce.prediction.masked_text import MaskedText

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def masked_text(**changes):
    side = SideTokenizer(wordpiece_of([*SPECIAL, *"abcdefghijklm[]"], lowercase=True))
    return MaskedText(small_bert(**changes), TokenizerPair(side, side))


def state(model, *ids):
    """Of every token of a text that is read by itself."""
    with torch.no_grad():
        return model.model.encode(torch.tensor([ids]))[0]


def test_special_tokens_in_a_line_are_text():
    model = masked_text()
    (vector,) = model.embed(["a [PAD] [SEP]"])
    wanted = state(model, 1, 5, 18, 3, 19, 18, 3, 19, 2).mean(dim=0)
    torch.testing.assert_close(torch.tensor(vector), wanted, atol=1e-5, rtol=1e-5)


def test_a_text_that_is_not_utf_8():
    with pytest.raises(DataError, match="the text is not UTF-8; give it as UTF-8"):
        masked_text().fill("\udcff [MASK]")


@pytest.mark.parametrize("name", ["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
def test_the_mask_alone_is_meant(name):
    model = masked_text()
    with pytest.raises(DataError, match=rf"the text holds \{name[:-1]}\], which the model reads as no text"):
        model.fill(f"a [MASK] {name}")
    (guesses,) = model.fill("a [MASK] z", count=1)  # which is unknown, and not written so
    assert guesses[0].text.startswith("a ")


def test_a_line_with_a_tab_is_two_texts():
    model = masked_text()
    warned = []
    short = MaskedText(masked_text(max_length=8).model, model.tokenizer, warned.append)
    lines = ["a", "a b\tc", "b"]
    vectors = [torch.tensor(vector) for vector in model.embed(lines)]
    with torch.no_grad():
        tokens, segments = torch.tensor([[1, 5, 6, 2, 7, 2]]), torch.tensor([[0, 0, 0, 0, 1, 1]])
        wanted = model.model.encode(tokens, segments)[0].mean(dim=0)
    torch.testing.assert_close(vectors[1], wanted, atol=1e-5, rtol=1e-5)
    list(short.embed(["a b c\td e f", "a\tb"]))
    assert warned == ["1 of 2 lines are longer than 6 tokens and were cut"]
    with pytest.raises(DataError, match="3 texts, with tabs between them"):
        list(model.embed(["a\tb\tc"]))


def test_a_vector_does_not_depend_on_the_lines_beside_it():
    model = masked_text()
    lines = ["a", "b c d e f g h i j k l m", "c a"]
    together = [torch.tensor(vector) for vector in model.embed(lines)]
    for line, vector in zip(lines, together, strict=True):
        (alone,) = model.embed([line])
        torch.testing.assert_close(vector, torch.tensor(alone), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[0], state(model, 1, 5, 2).mean(dim=0), atol=1e-5, rtol=1e-5)
