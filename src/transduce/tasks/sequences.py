"""Copying and reversing random words, which every sequence-to-sequence model must be able to learn."""

import random
import string
from collections.abc import Iterator


def copy_pairs(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield random words, each with itself."""
    for word in _words(count, seed):
        yield word, word


def reverse_pairs(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield random words, each with its reversal."""
    for word in _words(count, seed):
        yield word, word[::-1]


def _words(count: int, seed: int) -> Iterator[str]:
    generator = random.Random(seed)
    for _ in range(count):
        yield "".join(generator.choices(string.ascii_lowercase, k=generator.randint(3, 14)))
