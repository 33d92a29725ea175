"""What a validation decides: which model is the best, when to lower the learning rate, when to stop."""

import math

from transduce.config import TrainingConfig
from transduce.training.checkpoint import Progress
from transduce.training.validation import Validation

PLATEAU = 2  # validations without improvement after which the plateau schedule halves the learning rate


def record_validation(progress: Progress, validation: Validation, metric: str) -> bool:
    """Update the best figures so far; return whether this model is the best by ``metric``."""
    if progress.best_metric != metric:  # the configuration was changed before the run was resumed
        progress.best_metric, progress.best_score = metric, -math.inf
    score = -validation.loss if metric == "loss" else validation.scores[metric]
    improved = math.isfinite(validation.loss) and score > progress.best_score
    if improved:
        progress.best_score, progress.best_step = score, progress.step
        progress.validations_without_improvement = 0
    else:
        progress.validations_without_improvement += 1
    progress.best_loss = min(progress.best_loss, validation.loss)
    return improved


def patience_is_exhausted(progress: Progress, training: TrainingConfig) -> bool:
    """Tell whether as many validations in a row brought no improvement as ``patience`` allows."""
    return bool(training.patience) and progress.validations_without_improvement >= training.patience


def is_on_plateau(progress: Progress, training: TrainingConfig) -> bool:
    """Tell whether the plateau schedule halves the learning rate after this validation."""
    without = progress.validations_without_improvement
    return training.schedule == "plateau" and without > 0 and without % PLATEAU == 0


def reopen(progress: Progress) -> None:
    """Let a run that has ended continue, for whatever reason it ended."""
    progress.finished = progress.time_is_up = False
    progress.validations_without_improvement = 0
