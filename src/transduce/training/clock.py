"""The clock of a run: its time limit, and the age of its last checkpoint."""

import time

from transduce.config import TrainingConfig
from transduce.training.checkpoint import Progress


class Clock:
    """Measures the time since a run was started, resumed or last saved."""

    def __init__(self, training: TrainingConfig) -> None:
        self.training = training
        self.restart()

    def restart(self) -> None:
        """Measure from now on."""
        self._last_save = time.monotonic()

    @property
    def seconds_since_save(self) -> float:
        """The age of the last checkpoint, or the time since the run was started or resumed."""
        return time.monotonic() - self._last_save

    def is_late(self, progress: Progress) -> bool:
        """Tell whether the run has taken longer than the configured ``minutes``."""
        minutes = self.training.minutes
        return minutes is not None and progress.seconds + self.seconds_since_save > 60 * minutes

    def save_is_due(self) -> bool:
        """Tell whether the last checkpoint is older than the configured ``save_minutes``."""
        minutes = self.training.save_minutes
        return minutes > 0 and self.seconds_since_save > 60 * minutes

    def record_save(self, progress: Progress) -> None:
        """Add the time since the last checkpoint to the run's total."""
        progress.seconds += self.seconds_since_save
        self.restart()
