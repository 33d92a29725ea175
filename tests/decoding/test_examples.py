"""The examples in docstrings run."""

import doctest

from transduce.decoding import beam


def test_beam_search_over_ids():
    results = doctest.testmod(beam)
    assert results.attempted > 10
    assert results.failed == 0
