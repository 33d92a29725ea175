"""The examples in docstrings run."""

import doctest

import pytest

from transduce.decoding import beam, generator, translator


@pytest.mark.parametrize("module", [beam, generator, translator], ids=lambda module: module.__name__)
def test_examples(module):
    results = doctest.testmod(module)
    assert results.attempted > 4
    assert results.failed == 0
