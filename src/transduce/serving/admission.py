"""How many sentences may wait: more are refused, and told when to come back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from transduce.serving.errors import BusyError
from transduce.serving.scheduler import Scheduler

_LONGEST_WAIT = 3600  # seconds that a client is asked to wait


class Admissions:
    """Counts the sentences of all requests until they are translated."""

    def __init__(self, scheduler: Scheduler, limit: int) -> None:
        self.pending = 0
        self._scheduler, self._limit = scheduler, limit

    def require_room(self, count: int) -> None:
        """Raise a `BusyError` if so many sentences cannot be accepted now; if none wait, all are."""
        if self.pending and self.pending + count > self._limit:
            seconds = round(self.pending / self._scheduler.sentences_per_second)
            raise BusyError("too many sentences are waiting", min(max(1, seconds), _LONGEST_WAIT))

    @contextmanager
    def admitted(self, count: int) -> Iterator["Admission"]:
        """Count the sentences of a request."""
        self.require_room(count)
        self.pending += count
        admission = Admission(self, count)
        try:
            yield admission
        finally:
            self.pending -= admission.left


@dataclass
class Admission:
    """The sentences of a request that are not translated yet."""

    admissions: Admissions
    left: int

    def finish_one(self) -> None:
        """Note that a sentence is translated."""
        self.left -= 1
        self.admissions.pending -= 1
