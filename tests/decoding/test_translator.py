import json

import pytest

import transduce
from builders import small_config
from transduce.data.tokenizer import train
from transduce.decoding.files import translate_file
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.models.build import build

TOKENIZER = train(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
LINES = ["the fox", "", "a dog jumps over", "  ", "lazy", "the quick brown fox jumps over the lazy dog"]


def translator(**changes):
    model = build(small_config(**changes.pop("model", {})), TOKENIZER.vocabulary, seed=1).eval()
    return Translator(model, TOKENIZER, extra_length=5, **changes)


def test_a_line_out_for_every_line_in_and_empty_ones_stay_empty():
    found = list(translator().translate(LINES))
    assert [one.source for one in found] == LINES
    assert [one.text == "" for one in found][1] is True
    assert [bool(one.candidates) for one in found] == [True, False, True, False, True, True]


def test_neighbours_and_chunks_change_nothing():
    together = [one.text for one in translator().translate(LINES)]
    assert [one.text for one in translator().translate(LINES, ahead=2)] == together
    assert [next(translator().translate([line])).text for line in LINES] == together


def test_candidates_come_best_first_with_what_they_are_made_of():
    (found,) = translator(nbest=3).translate(["the fox"])
    scores = [one.score for one in found.candidates]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    for one in found.candidates:
        assert len(one.log_probabilities) - len(one.tokens) in (0, 1)  # the end counts too
        assert max(one.log_probabilities) <= 0


def test_a_line_that_the_model_cannot_read_is_cut_and_said():
    said = []
    model = {"positions": "learned", "max_length": 8}
    (found,) = translator(model=model, warn=said.append).translate(["the quick brown fox"])
    assert found.candidates
    assert said == ["a line of 20 tokens was cut to the model's 8: 'the quick brown fox' ..."]


def test_files(tmp_path):
    transduce.save(translator().model, tmp_path / "model", TOKENIZER)
    loaded = transduce.Translator.load(tmp_path / "model", beam=2, extra_length=5)
    (tmp_path / "in").write_bytes(b"the fox\r\n\nlazy")
    translate_file(loaded, tmp_path / "in", tmp_path / "out", "text")
    lines = (tmp_path / "out").read_text().split("\n")
    assert len(lines) == 4
    assert (lines[1], lines[3]) == ("", "")
    translate_file(loaded, tmp_path / "in", tmp_path / "out.json", "json")
    objects = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    assert [one["source"] for one in objects] == ["the fox", "", "lazy"]
    assert objects[0]["candidates"][0]["text"] == lines[0]


def test_broken_text_is_named(tmp_path):
    (tmp_path / "in").write_bytes(b"fine\nbro\xffken\n")
    with pytest.raises(DataError, match=r"in, line 2: not UTF-8 at byte 4; save the text as UTF-8"):
        translate_file(translator(), tmp_path / "in", tmp_path / "out", "text")
    with pytest.raises(DataError, match=r"cannot read .*nowhere"):
        translate_file(translator(), tmp_path / "nowhere", None, "text")
