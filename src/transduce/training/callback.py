"""How a training run reports what it does."""

from typing import Protocol

from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation


class TrainingCallback(Protocol):
    """Receives the events of a run: a progress bar, TensorBoard, a test."""

    def on_message(self, message: str) -> None:
        """Receive a message for the user: a warning or a decision."""
        ...

    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Receive the metrics of every training step.

        They are ``loss``, which is minimized and includes label smoothing; ``nll``, which is comparable to
        the validation loss; ``norm``, that of the gradient before clipping; and ``learning_rate``.
        """
        ...

    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Receive what was written to ``metrics.jsonl``, after some training steps and every validation."""
        ...

    def on_validation(self, progress: Progress, validation: Validation) -> None:
        """Receive the result of a validation."""
        ...
