"""IBM Model 1 on pairs whose alignments are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.lexicon import join_rows, learn_lexicon
from transduce.data.rows import Rows


def translated(source):
    """A language in which token s becomes s + 50, in reverse order."""
    return [token + 50 for token in reversed(source)]


def test_translations_are_found():
    generator = np.random.default_rng(1)
    sources = [generator.integers(1, 40, generator.integers(1, 9)).tolist() for _ in range(500)]
    lexicon = learn_lexicon(Rows.of(sources), Rows.of(map(translated, sources)), 100)
    best = lexicon.best(41, 1)
    assert not len(best[0])  # a token that never occurs
    assert [tokens.tolist() for tokens in best[1:40]] == [[token + 50] for token in range(1, 40)]


def test_a_frequent_target_word_is_left_to_the_empty_word():
    """Every target has token 9, which no source token stands for."""
    generator = np.random.default_rng(2)
    sources = [generator.choice(np.arange(1, 9), 3, replace=False).tolist() for _ in range(300)]
    targets = [[*translated(source), 9] for source in sources]
    best = learn_lexicon(Rows.of(sources), Rows.of(targets), 100, iterations=8).best(9, 1)
    assert [tokens.tolist() for tokens in best[1:]] == [[token + 50] for token in range(1, 9)]


@given(
    pairs=st.lists(
        st.tuples(
            st.lists(st.integers(0, 5), min_size=1, max_size=5),
            st.lists(st.integers(0, 7), min_size=0, max_size=5),
        ),
        max_size=8,
    )
)
def test_probabilities_of_a_source_token_sum_to_one(pairs):
    sources, targets = (Rows.of([pair[side] for pair in pairs]) for side in (0, 1))
    seen = []
    lexicon = learn_lexicon(sources, targets, 8, iterations=2, on_block=seen.append)
    assert sum(seen) == 3 * len(pairs)
    together = {(s, t) for source, target in pairs for s in source for t in target}
    assert set(zip(lexicon.sources.tolist(), lexicon.targets.tolist(), strict=True)) == together
    totals = np.bincount(lexicon.sources, lexicon.probabilities, 6)
    for token in {s for s, _ in together}:
        assert totals[token] == pytest.approx(1, abs=1e-5)


def test_rows_one_after_the_other():
    assert join_rows([Rows.of([[1, 2], []]), Rows.of([[3]])]).tolist() == [[1, 2], [], [3]]
