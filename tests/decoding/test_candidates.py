import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.decoding.beam import close_gaps, keep_places
from transduce.decoding.candidates import best_of


@given(
    sentences=st.integers(1, 3),
    width=st.integers(1, 5),
    vocabulary=st.sampled_from([2, 5, 63, 64, 65, 127, 130, 200, 1000, 1003]),
    count=st.integers(1, 10),
    forbidden=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_best_of_blocks_are_the_best_of_all(sentences, width, vocabulary, count, forbidden, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(sentences, width, vocabulary, generator=generator)
    if forbidden:
        scores[torch.rand(scores.shape, generator=generator) < 0.5] = -torch.inf
    offsets = 3 * torch.randn(sentences, width, generator=generator)
    everything = (scores + offsets[:, :, None]).flatten(1)
    count = min(count, everything.size(1))
    sums, parents, tokens = best_of(scores, offsets, count)
    expected = everything.topk(count, dim=1)
    torch.testing.assert_close(sums, expected.values)
    places = parents * vocabulary + tokens
    real = expected.values > -torch.inf
    assert torch.equal(places[real], expected.indices[real])
    assert parents.max() < width
    assert tokens.max() < vocabulary


@given(st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=1, max_size=4))
def test_the_first_child_takes_its_parents_place(parents):
    parents = np.array(parents)
    order = keep_places(parents)
    for row, moved in zip(parents.tolist(), order.tolist(), strict=True):
        assert sorted(moved) == [0, 1, 2, 3, 4]  # each child has a place of its own
        for parent in set(row):
            assert moved[parent] == row.index(parent)


@given(st.lists(st.booleans(), max_size=12))
def test_remaining_rows_fill_the_gaps_with_few_moves(going):
    rows = close_gaps(going)
    assert sorted(rows) == [row for row, goes in enumerate(going) if goes]
    assert all(row == place for place, row in enumerate(rows) if going[place])
