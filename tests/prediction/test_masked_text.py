"""A masked language model in use: masks, vectors, classes."""

import numpy as np
import pytest
import torch

from builders import small_bert
from transduce import artifact
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.wordpiece import wordpiece_of
from transduce.errors import ConfigError, DataError
from transduce.prediction.masked_text import MaskedTextModel

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def masked_text(**changes):
    side = SideTokenizer(wordpiece_of([*SPECIAL, *"abcdefghijklm[]"], lowercase=True))
    return MaskedTextModel(small_bert(**changes), TokenizerPair(side, side))


def state(model, *ids):
    """The hidden states of a text that is encoded alone."""
    with torch.no_grad():
        return model.model.encode(torch.tensor([ids]))[0]


def test_special_tokens_in_a_line_are_ordinary_text():
    model = masked_text()
    (vector,) = model.embed(["a [PAD] [SEP]"])
    wanted = state(model, 1, 5, 18, 3, 19, 18, 3, 19, 2).mean(dim=0)
    torch.testing.assert_close(torch.tensor(vector), wanted, atol=1e-5, rtol=1e-5)


def test_a_text_that_is_not_utf_8():
    with pytest.raises(DataError, match="UTF-8"):
        masked_text().fill("\udcff [MASK]")


@pytest.mark.parametrize("name", ["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
def test_other_special_tokens_are_refused(name):
    model = masked_text()
    with pytest.raises(DataError, match=rf"\{name[:-1]}\]"):
        model.fill(f"a [MASK] {name}")
    (guesses,) = model.fill("a [MASK] z", count=1)  # z is unknown, but [UNK] is not written
    assert guesses[0].text.startswith("a ")


def test_a_line_with_a_tab_is_two_texts():
    model = masked_text()
    warned = []
    short = MaskedTextModel(masked_text(max_length=8).model, model.tokenizer, warned.append)
    lines = ["a", "a b\tc", "b"]
    vectors = [torch.tensor(vector) for vector in model.embed(lines)]
    with torch.no_grad():
        tokens, segments = torch.tensor([[1, 5, 6, 2, 7, 2]]), torch.tensor([[0, 0, 0, 0, 1, 1]])
        wanted = model.model.encode(tokens, segments)[0].mean(dim=0)
    torch.testing.assert_close(vectors[1], wanted, atol=1e-5, rtol=1e-5)
    short.embed(["a b c\td e f", "a\tb"])
    assert len(warned) == 1
    assert "1 of 2 lines" in warned[0]
    assert "6 tokens" in warned[0]
    with pytest.raises(DataError, match="3 texts"):
        model.embed(["a\tb\tc"])


def test_a_vector_does_not_depend_on_the_lines_beside_it():
    model = masked_text()
    lines = ["a", "b c d e f g h i j k l m", "c a"]
    together = [torch.tensor(vector) for vector in model.embed(lines)]
    for line, vector in zip(lines, together, strict=True):
        (alone,) = model.embed([line])
        torch.testing.assert_close(vector, torch.tensor(alone), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[0], state(model, 1, 5, 2).mean(dim=0), atol=1e-5, rtol=1e-5)


def test_one_text_or_several():
    model = masked_text()
    together = model.embed(["a b", "c"])
    assert together.shape == (2, 16)
    np.testing.assert_allclose(model.embed("a b"), together[0], atol=1e-5)
    assert model.embed([]).shape == (0, 16)
    assert not np.allclose(model.embed("a b", pooling="cls"), together[0])


def test_classes():
    model = masked_text(classes=["odd", "even", "none"], pooler=True)
    results = model.classify(["a b", "c"])
    for result in results:
        assert set(result) == {"odd", "even", "none"}
        assert list(result.values()) == sorted(result.values(), reverse=True)
        assert sum(result.values()) == pytest.approx(1)
    assert model.classify("a b") == pytest.approx(results[0], abs=1e-5)
    assert model.embed(["a"], pooling="pooler").shape == (1, 16)
    with pytest.raises(ConfigError, match="mlm finetune"):
        masked_text().stream_classes(["a"])
    with pytest.raises(ConfigError, match="pooler"):
        masked_text().stream_vectors(["a"], "pooler")


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "auto"])
def test_other_precisions_are_close(tmp_path, precision):
    model = masked_text()
    artifact.save(model.model, tmp_path, model.tokenizer)
    loaded = MaskedTextModel.load(tmp_path, precision=precision, device="cpu")
    np.testing.assert_allclose(loaded.embed("a b c"), model.embed("a b c"), atol=0.2)
    assert len(loaded.fill("a [MASK] [MASK]", count=3)[1]) == 3
