from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.blocks import Cutter
from transduce.data.rows import Rows

texts = st.lists(st.lists(st.integers(0, 99), max_size=12), max_size=12)


@given(texts, st.integers(2, 7), st.integers(0, 1), st.integers(1, 5))
def test_packed_blocks_contain_the_whole_text(rows, size, overlap, at_once):
    """However the text is divided into calls, the blocks are those of the whole text."""
    cutter, found = Cutter(size, overlap=overlap), []
    for begin in range(0, len(rows), at_once):
        found += cutter.cut(Rows.of(rows[begin : begin + at_once])).tolist()
    assert all(len(block) == size for block in found)
    found += cutter.rest().tolist()
    text = [id_ for row in rows for id_ in row]
    joined = text[:overlap] + [id_ for block in found for id_ in block[overlap:]]
    assert joined == text if len(text) > overlap else found == []
    for one, next_one in pairwise(found):
        assert one[len(one) - overlap :] == next_one[:overlap]


@given(texts, st.integers(2, 7), st.integers(0, 1))
def test_rows_that_are_not_packed_stay_separate(rows, size, overlap):
    cutter = Cutter(size, overlap=overlap, packed=False)
    found = cutter.cut(Rows.of(rows)).tolist()
    stride = size - overlap
    wanted = []
    for row in rows:
        begin = 0
        while begin + overlap < len(row):
            wanted.append(row[begin : begin + size])
            begin += stride
    assert found == wanted
    assert len(cutter.rest()) == 0


def test_blocks_must_be_longer_than_what_they_share():
    with pytest.raises(ValueError, match="blocks of 1"):
        Cutter(1, overlap=1)


def test_rows_can_be_started():
    assert Rows.of([[5, 6], [], [7]]).started(1).tolist() == [[1, 5, 6], [1], [1, 7]]
    assert Rows.of([[5]]).started(1).ids.dtype == np.uint32
