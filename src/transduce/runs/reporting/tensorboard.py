"""A run's metrics in TensorBoard."""

from pathlib import Path

from transduce.errors import DependencyError, TrainingError, reason_of, remedy_for_writing
from transduce.runs.reporting.tracker import Tracker
from transduce.runs.task import Words


class TensorBoard(Tracker):
    """A `TrainingCallback` that writes ``RUN/tensorboard``, for ``tensorboard --logdir RUN``."""

    def __init__(self, run_folder: Path, step: int, words: Words) -> None:
        """Continue at ``step``: hide later values of an earlier process, and fill in what is missing.

        A run that was trained without TensorBoard so far gets its whole history from ``metrics.jsonl``.
        """
        super().__init__(words)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise DependencyError(
                "--tensorboard needs the package tensorboard", "run: pip install tensorboard"
            ) from None
        folder = run_folder / "tensorboard"
        try:
            written = _read_steps(folder)
            self._writer = SummaryWriter(str(folder), purge_step=step + 1)
        except OSError as error:
            raise TrainingError(
                f"cannot write {folder}: {reason_of(error)}", remedy_for_writing(error)
            ) from error
        for logged, values in self.history(run_folder, step):
            missing = {
                name: value for name, value in values.items() if logged not in written.get(name, set())
            }
            self.write(logged, missing)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write the values of one step to disk at once: a killed process must not lose them."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def _read_steps(folder: Path) -> dict[str, set[int]]:
    """Return the steps that event files in this folder hold, by name."""
    if not folder.is_dir():
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # 0: all of them
    events.Reload()
    return {name: {event.step for event in events.Scalars(name)} for name in events.Tags()["scalars"]}
