import io

import pytest
import torch
from rich.console import Console
from rich.table import Table

from builders import small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.inspection.interactive import converse, picture
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")


def translator(nbest=1, **model):
    built = build(small_config(**model), TOKENIZER.vocabulary, seed=1).eval()
    settings = SearchSettings(extra_length=5, nbest=nbest)
    return Translator(built, TOKENIZER, settings, on_warning=lambda message: None)


def reader(*lines):
    left = list(lines)

    def read():
        if not left:
            raise EOFError
        return left.pop(0)

    return read


def shown(translator, *lines):
    output = io.StringIO()
    converse(translator, reader(*lines), Console(file=output, width=200))
    return output.getvalue()


def test_a_split_line_has_no_picture():
    text = shown(translator(2, positions="learned", max_length=8), "the quick brown fox", "fox")
    assert text.count("</s>") == 1  # of the second line


def test_a_line_that_is_not_utf_8_is_skipped():
    text = shown(translator(), "A man\udcff", "fox")
    assert text.count("UTF-8") == 1
    assert text.count("</s>") == 1  # of the second line


@pytest.mark.parametrize("token", ["a", "ab", "abc", "語"])
@pytest.mark.parametrize("columns", range(10, 34))
def test_a_picture_is_whole_or_not_drawn(token, columns):
    drawn = picture(torch.rand(2, columns).softmax(dim=1), [token] * columns, ["語" * 4, "x"], 80)
    output = io.StringIO()
    Console(file=output, width=80).print(drawn)
    assert "…" not in output.getvalue()
    if columns == 10:
        assert isinstance(drawn, Table)
