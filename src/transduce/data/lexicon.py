"""A lexicon: the probability that a source token is translated by a target token, learned from pairs.

It is IBM Model 1 (Brown et al., 1993): each target token is aligned with one of the source's tokens, or with
none of them (the empty word), and the probabilities are those that make the pairs most likely, found by
expectation maximization.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transduce.data.rows import Rows

Keys = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float32]
_LARGEST_BLOCK = 1 << 21  # pairs of tokens that are looked at together


@dataclass(frozen=True)
class Lexicon:
    """Pairs of tokens that occur together, in order, and the probability of the target given the source."""

    sources: Keys
    targets: Keys
    probabilities: Probabilities

    def best(self, source_size: int, count: int) -> list[Keys]:
        """Return the ``count`` most likely targets of each source token, most likely first."""
        order = np.lexsort((-self.probabilities, self.sources))
        begins = np.searchsorted(self.sources, np.arange(source_size + 1))
        return [self.targets[order[begin : min(begin + count, end)]] for begin, end in pairwise(begins)]


def learn_lexicon(
    sources: Rows,
    targets: Rows,
    target_size: int,
    *,
    iterations: int = 4,
    on_block: Callable[[int], None] = lambda pairs: None,
) -> Lexicon:
    """Learn a lexicon from pairs of sequences; ``on_block`` is told how many pairs each block of work has.

    Every pair is looked at once to find the tokens that occur together, and once per iteration.
    """
    empty_word = int(sources.ids.max(initial=0)) + 1
    keys = _distinct(_blocks(sources, targets, target_size, empty_word, on_block))
    # Uniform at first: the number of targets of a source cancels out when alignments are normalized.
    probabilities = np.ones(len(keys), np.float32)
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for block in _blocks(sources, targets, target_size, empty_word, on_block):
            places = np.searchsorted(keys, block)  # (pairs, source, target)
            weights = probabilities[places]
            weights /= weights.sum(axis=1, keepdims=True)
            counts += np.bincount(places.ravel(), weights.ravel(), len(keys))
        totals = np.bincount(keys // target_size, counts)
        probabilities = (counts / totals[keys // target_size]).astype(np.float32)
    aligned = keys // target_size != empty_word
    keys = keys[aligned]
    return Lexicon(keys // target_size, keys % target_size, probabilities[aligned])


def _distinct(blocks: Iterable[Keys]) -> Keys:
    """Return all different keys in order, without holding many of them twice."""
    known, pending, count = np.empty(0, np.int64), list[Keys](), 0
    for block in blocks:
        pending.append(np.unique(block))
        count += len(pending[-1])
        if count > max(len(known), _LARGEST_BLOCK):
            known, pending, count = np.unique(np.concatenate([known, *pending])), [], 0
    return np.unique(np.concatenate([known, *pending]))


def _blocks(
    sources: Rows, targets: Rows, target_size: int, empty_word: int, on_block: Callable[[int], None]
) -> Iterator[Keys]:
    """Yield a number for every pair of tokens that occur together: (pairs, source, target).

    The sequences of a block have equal lengths, so that nothing is padded; the empty word comes first.
    """
    source_begins, target_begins = (np.cumsum(rows.lengths) - rows.lengths for rows in (sources, targets))
    shapes = np.stack([sources.lengths, targets.lengths], axis=1)
    order = np.lexsort((shapes[:, 1], shapes[:, 0]))
    changes = np.flatnonzero(np.any(np.diff(shapes[order], axis=0), axis=1)) + 1
    for group in np.split(order, changes):
        if not len(group):
            continue
        source_length, target_length = shapes[group[0]].tolist()
        size = max(1, _LARGEST_BLOCK // ((source_length + 1) * max(1, target_length)))
        for begin in range(0, len(group), size):
            rows = group[begin : begin + size]
            on_block(len(rows))
            source = sources.ids[source_begins[rows][:, None] + np.arange(source_length)].astype(np.int64)
            target = targets.ids[target_begins[rows][:, None] + np.arange(target_length)].astype(np.int64)
            source = np.insert(source, 0, empty_word, axis=1)
            yield source[:, :, None] * target_size + target[:, None, :]


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return all rows of several parts, one after the other."""
    return Rows(
        np.concatenate([part.ids for part in parts]), np.concatenate([part.lengths for part in parts])
    )
