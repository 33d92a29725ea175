"""The speed of a run: tokens, texts or images per second."""

import time

_INTERVAL = 0.5  # seconds; over shorter intervals, the speed jumps up and down


class Throughput:
    """Units per second, measured over intervals that leave validations out."""

    def __init__(self) -> None:
        self._start: tuple[float, int] | None = None  # of the interval: time and units
        self._total_seconds, self._total_units = 0.0, 0
        self.per_second: float | None = None  # over the last interval

    def start(self, units: int) -> None:
        """Start an interval: at the first step, and after everything that is not training."""
        self._start = (time.monotonic(), units)

    def measure(self, units: int) -> float | None:
        """Return the speed over the last interval, which ends here if it is long enough."""
        if self._start is None:
            self.start(units)
        elif (elapsed := time.monotonic() - self._start[0]) >= _INTERVAL:
            self._total_seconds += elapsed
            self._total_units += units - self._start[1]
            self.per_second = (units - self._start[1]) / elapsed
            self.start(units)
        return self.per_second

    @property
    def average(self) -> float | None:
        """Units per second over all intervals."""
        return self._total_units / self._total_seconds if self._total_seconds else None
