import io

import pytest
import torch
from rich.console import Console

from builders import small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.inspection.interactive import attention_view, translate_interactively
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")


def translator(nbest=1, **model):
    built = build(small_config(**model), TOKENIZER.vocabulary, seed=1).eval()
    settings = SearchSettings(extra_length=5, nbest=nbest)
    return Translator(built, TOKENIZER, settings, on_warning=lambda message: None)


def shown(translator, *lines, end=EOFError, width=200):
    """Return the screen after these lines are typed; an exception among them is raised instead."""
    typed = iter([*lines, end])

    def read_line():
        line = next(typed)
        if isinstance(line, str):
            return line
        raise line

    console = Console(file=io.StringIO(), width=width)
    translate_interactively(translator, console, read_line)
    return console.file.getvalue()


def test_a_translation_its_alternatives_and_the_attention():
    model = translator(nbest=3)
    text = shown(model, "the fox")
    for candidate in model("the fox").candidates:
        assert candidate.text in text
    assert "</s>" in text  # a column of the attention table


def test_a_line_that_was_split_has_no_attention_table():
    text = shown(translator(2, positions="learned", max_length=8), "the quick brown fox", "fox")
    assert text.count("</s>") == 1  # of the second line


def test_a_line_that_is_not_utf_8_is_skipped():
    text = shown(translator(), "A man\udcff", "fox")
    assert text.count("UTF-8") == 1
    assert text.count("</s>") == 1  # of the second line


def test_ctrl_c_at_the_prompt_quits_without_an_error():
    assert "error" not in shown(translator(), "fox", end=KeyboardInterrupt).lower()


def test_ctrl_c_cancels_a_translation_and_the_next_line_is_translated(monkeypatch):
    calls = []
    translate = Translator.__call__

    def interrupted_once(self, text):
        calls.append(text)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return translate(self, text)

    monkeypatch.setattr(Translator, "__call__", interrupted_once)
    text = shown(translator(), "the fox", "fox")
    assert calls == ["the fox", "fox"]
    assert "</s>" in text


@pytest.mark.parametrize("token", ["a", "ab", "abc", "語"])
@pytest.mark.parametrize("columns", range(10, 34, 3))
def test_the_attention_view_fits_into_80_columns(token, columns):
    weights = torch.rand(2, columns).softmax(dim=1)
    console = Console(file=io.StringIO(), width=80)
    console.print(attention_view(weights, [token] * columns, ["語" * 4, "x"], 80))
    lines = console.file.getvalue().splitlines()
    assert "…" not in console.file.getvalue()
    assert sum("語語語語" in line for line in lines) == 1
    if columns == 10:
        assert sum(line.count(token) for line in lines) >= 10  # every column has a header


def test_shades_follow_the_weights():
    attention = torch.tensor([[0.9, 0.1], [0.0, 1.0]])
    console = Console(file=io.StringIO(), width=60)
    console.print(attention_view(attention, ["the", "</s>"], ["der", "Hund"], 60))
    lines = console.file.getvalue().splitlines()
    assert any("the" in line and "</s>" in line for line in lines)
    (first,) = [line for line in lines if "der" in line]
    (second,) = [line for line in lines if "Hund" in line]
    assert first.index("█") < second.index("█")


def test_a_narrow_terminal_shows_the_strongest_source_tokens():
    attention = torch.tensor([[0.9, 0.1], [0.0, 1.0]])
    console = Console(file=io.StringIO(), width=14)
    console.print(attention_view(attention, ["the", "</s>"], ["der", "Hund"], 14))
    text = console.file.getvalue()
    assert "der ← the" in text
    assert "Hund ← </s>" in text
