import datetime

import pytest

from transduce.tasks.dates import LOCALES, date_pairs
from transduce.tasks.numbers import number_pairs
from transduce.tasks.sequences import copy_pairs, reverse_pairs


@pytest.mark.parametrize("make", [date_pairs, number_pairs, copy_pairs, reverse_pairs])
def test_the_seed_decides(make):
    assert list(make(50, 3)) == list(make(50, 3))
    assert list(make(50, 3)) != list(make(50, 4))
    assert len(list(make(50, 3))) == 50


@pytest.mark.parametrize("make", [date_pairs, number_pairs])
def test_no_text_means_two_things(make):
    meanings: dict[str, str] = {}
    for text, meaning in make(60_000, 1):
        assert meanings.setdefault(text, meaning) == meaning


def test_dates_are_dates_in_many_languages():
    assert len({locale.partition("_")[0] for locale in LOCALES}) >= 20
    for _, iso in date_pairs(200, 1):
        assert datetime.date.fromisoformat(iso).isoformat() == iso


def test_numbers_keep_their_digits():
    for text, plain in number_pairs(200, 1):
        assert [c for c in text if c.isdigit()] == [c for c in plain if c.isdigit()]


def test_copies_and_reversals():
    assert all(source == target for source, target in copy_pairs(20, 1))
    assert all(source == target[::-1] for source, target in reverse_pairs(20, 1))
