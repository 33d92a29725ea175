"""API keys and rate limits."""

import hmac
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError
from transduce.serving.errors import BusyError, ForbiddenError

KEYS_VARIABLE = "TRANSDUCE_API_KEYS"
_SHORTEST_KEY = 8
_MOST_CALLERS = 100_000  # remembered at a time; a flood of keys or addresses must not fill the memory


def read_keys(path: Path | None) -> list[str]:
    """Return the keys of a file, one per line, and of the environment, separated by commas or spaces.

    Lines that begin with ``#`` are comments.
    """
    lines = [] if path is None else list(decode_lines(raw_lines(path), str(path)))
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    keys += os.environ.get(KEYS_VARIABLE, "").replace(",", " ").split()
    for number, key in enumerate(keys, start=1):
        if len(key) < _SHORTEST_KEY:
            raise DataError(
                f"API key number {number} has fewer than {_SHORTEST_KEY} characters", "choose longer keys"
            )
    if path is not None and not keys:
        raise DataError(f"{path} has no API keys", "write one key per line")
    return keys


class Keys:
    """The API keys that are accepted; without any, everybody is."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    @property
    def are_required(self) -> bool:
        """Whether requests need a key."""
        return bool(self._keys)

    def check(self, key: str | None) -> None:
        """Raise a `ForbiddenError` unless a key is accepted."""
        if not self._keys:
            return
        given = (key or "").encode("utf-8", "surrogatepass")
        # All keys are compared, each in a time that does not depend on where it differs.
        if not sum(hmac.compare_digest(given, known) for known in self._keys):
            problem = "the API key is not valid" if key else "an API key is required"
            raise ForbiddenError(problem, "send one of the server's keys")


class RateLimit:
    """Limits the requests of each caller: a bucket of ``per_minute`` tokens that fills up evenly."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when

    def check(self, caller: str) -> None:
        """Count a request of a caller; raise a `BusyError` if there were too many."""
        if self._per_minute is None:
            return
        now, rate = self._clock(), self._per_minute / 60
        left, before = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - before) * rate)
        is_allowed = left >= 1
        self._buckets[caller] = (left - 1 if is_allowed else left), now
        while len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if not is_allowed:
            raise BusyError(
                f"more than {self._per_minute:,} requests per minute", max(1, math.ceil((1 - left) / rate))
            )
