import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.rows import Rows

lists = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=6), max_size=8)


@given(rows=lists)
def test_rows_convert_to_lists_and_back(rows):
    assert Rows.of(rows).tolist() == rows
    assert len(Rows.of(rows)) == len(rows)
    assert Rows.of(rows).lengths.tolist() == [len(row) for row in rows]


@given(rows=lists, token=st.integers(0, 2**32 - 1))
def test_a_token_is_appended_to_every_row(rows, token):
    assert Rows.of(rows).ended(token).tolist() == [[*row, token] for row in rows]


@given(rows=lists, data=st.data())
def test_select_keeps_the_wanted_rows(rows, data):
    wanted = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    expected = [row for row, keep in zip(rows, wanted, strict=True) if keep]
    assert Rows.of(rows).select(np.array(wanted, bool)).tolist() == expected
