"""Learning-rate schedules (section 5.3 of the paper). Steps are counted from 1."""

import math
from collections.abc import Callable

from transduce.config import TrainingConfig

Schedule = Callable[[int], float]


def paper_schedule(step: int, *, d_model: int, warmup: int) -> float:
    """Return ``d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)`` (equation 3).

    The rate rises linearly for ``warmup`` steps, then falls with the inverse square root of the step.
    """
    if step < 1:
        raise ValueError(f"steps are counted from 1, not {step}")
    return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def make_schedule(training: TrainingConfig, d_model: int) -> Schedule:
    """Return the configured schedule: all rise linearly to their peak and differ in how they fall."""
    warmup, steps = training.warmup, training.steps
    peak = training.learning_rate or paper_schedule(warmup, d_model=d_model, warmup=warmup)

    def decay(step: int) -> float:
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        if training.schedule == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        if training.schedule == "linear":
            return 1 - done
        if training.schedule == "plateau":  # lowered by early_stopping.py when validation stops improving
            return 1.0
        return math.sqrt(warmup / step)

    return lambda step: peak * (step / warmup if step < warmup else decay(step))
