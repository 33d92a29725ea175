from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.evaluation.edit_distance import edit_distance

sequences = st.lists(st.sampled_from("abc"), max_size=90)  # longer than a machine word, too


def naive(one, other):
    """The table of Wagner and Fischer, cell by cell."""
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        before, row = row, [i]
        for j, theirs in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (mine != theirs)))
    return row[-1]


@given(sequences, sequences)
@settings(max_examples=300)
def test_it_is_what_the_whole_table_gives(one, other):
    assert edit_distance(one, other) == naive(one, other)


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
@settings(max_examples=300)
def test_short_ones(one, other):
    assert edit_distance(one, other) == naive(one, other) == edit_distance(other, one)


def test_known_ones():
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    assert edit_distance("", "") == 0
    assert edit_distance(["k", "ae", "t"], ["k", "aet"]) == 2
