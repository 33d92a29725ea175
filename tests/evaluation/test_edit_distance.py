from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.evaluation.edit_distance import edit_distance

sequences = st.lists(st.sampled_from("abc"), max_size=90)  # some are longer than a machine word


def naive(first, second):
    """The table of Wagner and Fischer, cell by cell."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        above, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
    return row[-1]


@given(sequences, sequences)
@settings(max_examples=200)
def test_long_sequences_agree_with_the_whole_table(first, second):
    assert edit_distance(first, second) == naive(first, second)


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
@settings(max_examples=200)
def test_short_sequences_agree_with_the_whole_table(first, second):
    assert edit_distance(first, second) == naive(first, second) == edit_distance(second, first)


def test_known_distances():
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    assert edit_distance("", "") == 0
    assert edit_distance(["k", "ae", "t"], ["k", "aet"]) == 2
