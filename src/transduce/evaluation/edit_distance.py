"""The edit distance between two sequences of tokens."""

from collections.abc import Hashable, Sequence


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions that turn one into the other (Levenshtein, 1966).

    A column of the usual table is held as bits of two integers, the steps up and the steps down between its
    neighbouring cells, so that all its cells are computed at once (Myers, 1999; Hyyrö, 2003).
    """
    if not one:
        return len(other)
    places: dict[Hashable, int] = {}  # bit i is set where the token stands at i
    for index, token in enumerate(one):
        places[token] = places.get(token, 0) | 1 << index
    every, last = (1 << len(one)) - 1, 1 << len(one) - 1
    up, down, distance = every, 0, len(one)  # the first column counts 0, 1, 2, …
    for token in other:
        equal = places.get(token, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down  # where the diagonal step costs nothing
        right_up = down | (every & ~(diagonal | up))
        right_down = diagonal & up
        distance += bool(right_up & last) - bool(right_down & last)
        right_up, right_down = right_up << 1 | 1, right_down << 1
        up = (right_down | ~(diagonal | right_up)) & every
        down = right_up & diagonal & every
    return distance
