import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.serving import access
from transduce.serving.access import KEYS_VARIABLE, Keys, RateLimit, read_keys
from transduce.serving.errors import BusyError, ForbiddenError


@pytest.fixture(autouse=True)
def _no_keys_in_the_environment(monkeypatch):
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_read_from_a_file_and_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text("# of the office\nfirst-key-1\n\n  second-key-2  \n")
    monkeypatch.setenv(KEYS_VARIABLE, "third-key-3, fourth-key-4")
    assert read_keys(path) == ["first-key-1", "second-key-2", "third-key-3", "fourth-key-4"]
    assert read_keys(None) == ["third-key-3", "fourth-key-4"]


def test_short_keys_and_files_without_keys_are_refused(tmp_path):
    path = tmp_path / "keys"
    path.write_text("long-enough\nshort\n")
    with pytest.raises(DataError, match="number 2") as refused:
        read_keys(path)
    assert "short" not in str(refused.value).replace("shorter", "")
    path.write_text("# none\n")
    with pytest.raises(DataError, match=str(path)):
        read_keys(path)
    with pytest.raises(DataError):
        read_keys(tmp_path / "missing")


@pytest.mark.parametrize("key", [None, "", "first-key", "first-key-11", "FIRST-KEY-1", "\ud800", "ключ-ключ"])
def test_other_keys_are_refused(key):
    with pytest.raises(ForbiddenError):
        Keys(["first-key-1", "second-key-2"]).check(key)


def test_known_keys_are_accepted():
    keys = Keys(["first-key-1", "schlüssel-2"])
    keys.check("first-key-1")
    keys.check("schlüssel-2")
    assert keys.are_required


@given(st.none() | st.text())
def test_without_keys_everybody_is_accepted(key):
    Keys([]).check(key)
    assert not Keys([]).are_required


def test_a_caller_has_a_minute_worth_of_requests_at_once_and_then_one_after_another():
    clock = Clock()
    limit = RateLimit(60, clock)
    for _ in range(60):
        limit.check("a")
    with pytest.raises(BusyError) as busy:
        limit.check("a")
    assert busy.value.retry_after == 1
    limit.check("b")
    clock.now += 1.01
    limit.check("a")
    with pytest.raises(BusyError):
        limit.check("a")


@given(st.lists(st.floats(0, 30), max_size=100), st.integers(1, 20))
def test_never_more_than_the_limit_in_any_minute_after_the_first(waits, per_minute):
    clock = Clock()
    limit, times = RateLimit(per_minute, clock), []
    for wait in waits:
        clock.now += wait
        try:
            limit.check("a")
            times.append(clock.now)
        except BusyError:
            continue
    for time in times:
        assert sum(time <= other < time + 60 for other in times) <= 2 * per_minute


@given(st.integers(1, 100), st.floats(0, 0.99))
def test_waiting_as_long_as_told_is_enough(per_minute, share):
    clock = Clock()
    limit = RateLimit(per_minute, clock)
    for _ in range(per_minute):
        limit.check("a")
    clock.now += share * 60 / per_minute
    with pytest.raises(BusyError) as busy:
        limit.check("a")
    clock.now += busy.value.retry_after
    limit.check("a")


def test_a_flood_of_callers_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(access, "_MOST_CALLERS", 100)
    limit = RateLimit(1, Clock())
    for number in range(1000):
        limit.check(f"caller {number}")
    assert len(limit._buckets) == 100


def test_without_a_limit_nothing_is_remembered():
    limit = RateLimit(None)
    limit.check("a")
    assert not limit._buckets
