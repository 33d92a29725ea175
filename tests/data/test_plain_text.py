from itertools import chain

import pytest
from corpora import refused, sentences, write

from transduce.data.blocks import Cutter
from transduce.data.plain_text import PARTS, SIDE, PlainText, read_texts
from transduce.data.prepare import is_held_out
from transduce.data.prepared import Sequences
from transduce.data.rows import Rows

LINES = sentences(200)


def encode(texts):
    """Encode a text as the number that it ends in."""
    return Rows.of([[int(text.rstrip(".").split()[-1])] for text in texts])


def flat(rows):
    return list(chain.from_iterable(rows))


def prepared(folder, train, valid=(), *, packed=False, **options):
    text = PlainText(train, valid, packed, **options)
    for part in PARTS:
        text.write(folder, part, map(encode, text.chunks(part)), Cutter(4, packed=packed), 1000)
    parts = (Sequences(folder / part, SIDE) for part in PARTS)
    return [[row.tolist() for row in (part[index] for index in range(len(part)))] for part in parts]


def test_blank_lines_are_left_out(tmp_path):
    files = [write(tmp_path / "a", ["one", "", "  ", "two"]), write(tmp_path / "b.gz", ["three"])]
    assert list(read_texts(files)) == ["one", "two", "three"]
    assert "b, line 1" in refused(list, read_texts([write(tmp_path / "b", [b"\xff"])]))


def test_the_end_of_packed_text_is_held_out(tmp_path):
    train, valid = prepared(tmp_path / "out", [write(tmp_path / "a", LINES)], hold_out=0.1, packed=True)
    assert flat(train) == list(range(180))
    assert flat(valid) == list(range(180, 200))
    assert {len(block) for block in train[:-1]} == {4}


def test_lines_that_are_not_packed_are_held_out_by_their_hashes(tmp_path):
    train, valid = prepared(tmp_path / "out", [write(tmp_path / "a", LINES)], hold_out=0.2)
    held_out = [[number] for number, line in enumerate(LINES) if is_held_out(line, 0.2)]
    assert valid == held_out
    assert sorted(train + valid) == [[number] for number in range(200)]


@pytest.mark.parametrize("packed", [False, True])
def test_nothing_is_held_out_beside_validation_files(packed, tmp_path):
    files = [write(tmp_path / "a", LINES[:100])], [write(tmp_path / "b", LINES[100:])]
    train, valid = prepared(tmp_path / "out", *files, packed=packed)
    assert (flat(train), flat(valid)) == (list(range(100)), list(range(100, 200)))


def test_texts_that_are_too_short_are_named(tmp_path):
    blank, one = write(tmp_path / "blank", ["", " "]), write(tmp_path / "one", LINES[:1])
    assert str(blank) in refused(prepared, tmp_path / "out", [blank])
    assert str(blank) in refused(prepared, tmp_path / "out", [one], [blank])
    message = refused(prepared, tmp_path / "out", [one], packed=True)
    assert "training" in message
    assert "--hold-out" in message
