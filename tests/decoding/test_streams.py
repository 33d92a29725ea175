import io
import json

import pytest
import torch
from rich.console import Console
from translators import small_translator

from transduce.decoding import streams
from transduce.decoding.streams import translate_file
from transduce.errors import DataError, TransduceError


def test_a_line_out_for_every_line_in(tmp_path):
    translator = small_translator(beam=2)
    (tmp_path / "in").write_bytes(b"the fox\r\n\nlazy")
    translate_file(translator, tmp_path / "in", tmp_path / "out", "text")
    lines = (tmp_path / "out").read_text().split("\n")
    assert len(lines) == 4
    assert (lines[1], lines[3]) == ("", "")
    translate_file(translator, tmp_path / "in", tmp_path / "out.json", "json")
    objects = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    assert [each["source"] for each in objects] == ["the fox", "", "lazy"]
    assert objects[0]["candidates"][0]["text"] == lines[0]


def test_several_candidates_are_numbered_lines(tmp_path):
    translator = small_translator(nbest=3)
    (tmp_path / "in").write_text("the fox\n\nlazy\n")
    translate_file(translator, tmp_path / "in", tmp_path / "out", "text")
    rows = [line.split(" ||| ") for line in (tmp_path / "out").read_text().splitlines()]
    assert [number for number, _, _ in rows] == ["0"] * 3 + ["2"] * 3
    candidates = [each for line in ("the fox", "lazy") for each in translator(line).candidates]
    assert [text for _, text, _ in rows] == [each.text for each in candidates]
    assert [float(score) for _, _, score in rows] == [
        pytest.approx(each.score, abs=1e-3) for each in candidates
    ]


def test_what_was_written_stays_until_there_is_something_new(tmp_path):
    translator = small_translator()
    kept = tmp_path / "kept"
    kept.write_text("precious\n")
    with torch.no_grad():
        translator.model.output.weight.fill_(torch.nan)
    (tmp_path / "in").write_text("the fox\n")
    with pytest.raises(TransduceError):
        translate_file(translator, tmp_path / "in", kept, "text")
    assert kept.read_text() == "precious\n"
    (tmp_path / "none").write_text("")
    translate_file(small_translator(), tmp_path / "none", kept, "text")
    assert kept.read_text() == ""


def test_a_file_that_is_read_is_not_overwritten_under_another_name(tmp_path, monkeypatch):
    (tmp_path / "in").write_text("the fox\n")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    (tmp_path / "soft").symlink_to("in")
    translator = small_translator()
    for name in ("in", "hard", "soft"):
        with pytest.raises(DataError, match="--output"):
            translate_file(translator, tmp_path / "in", tmp_path / name, "text")
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr(streams, "_STANDARD_INPUT", file.fileno())
        with pytest.raises(DataError, match="--output"):
            translate_file(translator, None, tmp_path / "hard", "text")
    with (tmp_path / "in").open("a") as file:
        monkeypatch.setattr(streams, "_STANDARD_OUTPUT", file.fileno())
        with pytest.raises(DataError, match="--output"):
            translate_file(translator, tmp_path / "in", None, "text")
    assert (tmp_path / "in").read_text() == "the fox\n"


def test_invalid_text_is_named_and_the_lines_before_it_are_written(tmp_path):
    (tmp_path / "in").write_bytes(b"fine\nbro\xffken\n")
    with pytest.raises(DataError, match=r"in, line 2: .*byte 4"):
        translate_file(small_translator(), tmp_path / "in", tmp_path / "out", "text")
    assert (tmp_path / "out").read_text().count("\n") == 1
    with pytest.raises(DataError, match="nowhere"):
        translate_file(small_translator(), tmp_path / "nowhere", None, "text")


def test_progress_is_shown_on_a_terminal_if_translations_go_elsewhere(tmp_path):
    (tmp_path / "in").write_text("the fox\nlazy\n")
    for terminal in (True, False):
        shown = io.StringIO()
        console = Console(file=shown, force_terminal=terminal, width=80)
        translate_file(small_translator(), tmp_path / "in", tmp_path / "out", "text", console)
        assert bool(shown.getvalue()) is terminal
