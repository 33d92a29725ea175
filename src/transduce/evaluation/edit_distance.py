"""The edit distance between two sequences of tokens."""

from collections.abc import Hashable, Sequence


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Return the minimum number of insertions, deletions and substitutions (Levenshtein, 1966).

    A column of the usual table is held as the bits of two integers, which mark where a cell is one larger or
    one smaller than the cell above it, so that all cells of a column are computed at once (Myers, 1999;
    Hyyrö, 2003).
    """
    if not first:
        return len(second)
    positions: dict[Hashable, int] = {}  # bit i of a token's integer is set if first[i] is the token
    for index, token in enumerate(first):
        positions[token] = positions.get(token, 0) | 1 << index
    all_bits, last_bit = (1 << len(first)) - 1, 1 << len(first) - 1
    larger, smaller, distance = all_bits, 0, len(first)  # the first column is 0, 1, 2, …
    for token in second:
        equal = positions.get(token, 0)
        free_diagonal = (((equal & larger) + larger) ^ larger) | equal | smaller
        right_larger = smaller | (all_bits & ~(free_diagonal | larger))
        right_smaller = free_diagonal & larger
        distance += bool(right_larger & last_bit) - bool(right_smaller & last_bit)
        right_larger, right_smaller = right_larger << 1 | 1, right_smaller << 1
        larger = (right_smaller | ~(free_diagonal | right_larger)) & all_bits
        smaller = right_larger & free_diagonal & all_bits
    return distance
