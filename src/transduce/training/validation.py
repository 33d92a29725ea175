"""Validation: how well a model predicts held-out data, and whether its predictions depend on the source."""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from transduce import artifact
from transduce.config import TrainingConfig
from transduce.errors import ConfigError
from transduce.models.perplexity import perplexity
from transduce.models.protocol import Model
from transduce.nn.adapter import merged_weights
from transduce.training.checkpoint import Progress
from transduce.training.distributed import Microbatch, WorkerGroup, gather_full, is_sharded
from transduce.training.loss import Loss
from transduce.training.memory import add_up, split_batches
from transduce.training.objectives.objective import Indices, Objective

Sums = npt.NDArray[np.float64]  # negative log-likelihood, correct predictions, tokens

SHUFFLED_SOURCE_BATCHES = 10  # batches that are also computed with shuffled sources
IGNORED_SOURCE = 0.02  # nats per token: shuffled sources must raise the loss by at least this
EARLY_STEPS = 500  # before this step, no warning says that the model ignores its source
DIVERGED = 1.0  # nats per token above the lowest validation loss
_REMEDY = "Lower the learning rate, lengthen the warm-up, or use a pre-norm model."


class ValidationScorer(Protocol):
    """Scores a model by what it generates for held-out data."""

    def score(self, model: Model) -> dict[str, float]:
        """Return scores by name ("bleu", "chrf"), higher is better; the model is in evaluation mode.

        The model's weights and the state of torch's random generators must stay as they are.
        """
        ...


@dataclass(frozen=True)
class Validation:
    """Figures per token of held-out data."""

    loss: float  # negative log-likelihood in nats, without label smoothing
    accuracy: float
    shuffled_source_loss: float  # the loss when targets get the sources of other targets
    scores: dict[str, float] = field(default_factory=dict)  # of a `ValidationScorer`

    @property
    def perplexity(self) -> float:
        """The exponential of the loss."""
        return perplexity(self.loss)

    @property
    def ignores_source(self) -> bool:
        """Whether shuffled sources make no difference to the loss."""
        return self.shuffled_source_loss - self.loss < IGNORED_SOURCE

    @property
    def metrics(self) -> dict[str, float]:
        """The figures by their names in ``metrics.jsonl``."""
        return {
            "valid_loss": self.loss,
            "valid_accuracy": self.accuracy,
            "shuffled_source_loss": self.shuffled_source_loss,
            **{f"valid_{name}": score for name, score in self.scores.items()},
        }


class Validator:
    """Computes validations of one model on the same held-out data."""

    def __init__(
        self,
        module: nn.Module,
        model: Model,
        data: Objective[Any],
        metric: str,
        workers: WorkerGroup,
        scorer: ValidationScorer | None = None,
    ) -> None:
        """Take the `LossModule` of ``model`` as `WorkerGroup.distribute` returned it."""
        if metric != "loss" and scorer is None:
            raise ConfigError(
                f'validation_metric = "{metric}" needs a model that generates text',
                'set validation_metric = "loss" in [training]',
            )
        self.module, self.model, self.data = module, model, data
        self.metric, self.workers, self.scorer = metric, workers, scorer

    @property
    def batches(self) -> list[Indices]:
        """All held-out data."""
        return [indices for step in self.data.steps(epoch=0) for indices in step]

    @torch.no_grad()
    def validate(self, splits: int = 1) -> Validation:
        """Compute the loss of all data without dropout, and the scores of what the model generates.

        Every batch is computed in ``splits`` parts. If a part does not fit into the memory of a process, all
        processes raise a `BatchTooLargeError`. Leaves the model in training mode.
        """
        batches, sharded = self.batches, is_sharded(self.model)
        parts = split_batches(self.workers.share(batches), splits)
        self.module.eval()
        try:
            sums = add_up(
                self.workers,
                parts,
                lambda: self._compute_sums(parts, batches[0][:1] if sharded else None, splits),
                count=9,
                can_split=not sharded,
            )
            scores = self._score() if self.scorer else {}
        finally:
            self.module.train()
        (loss, accuracy), (shuffled, _), (unshuffled, _) = map(_means, (sums[:3], sums[3:6], sums[6:]))
        return Validation(loss, accuracy, loss + (shuffled - unshuffled), scores)

    def _compute_sums(self, parts: list[Indices], dummy: Indices | None, splits: int) -> list[float]:
        """Return sums over all parts of this process, and over some with and without shuffled sources.

        ``dummy`` is computed where other processes have more parts, if FSDP needs that.
        """
        total, shuffled, unshuffled = np.zeros(3), np.zeros(3), np.zeros(3)
        microbatches = self.workers.equalize(parts, dummy) if dummy is not None else map(Microbatch, parts)
        for number, microbatch in enumerate(microbatches):
            weight = 0 if microbatch.is_dummy else 1
            sums = _sums(self.module(self.data, microbatch.indices, 0)) * weight
            total += sums
            if number >= SHUFFLED_SOURCE_BATCHES * splits:
                continue
            shuffled_loss = self.module(self.data, microbatch.indices, 0, shuffle_source=True)
            if shuffled_loss is not None:
                shuffled += _sums(shuffled_loss) * weight
                unshuffled += sums  # the difference is measured on the same batches
        return [*total, *shuffled, *unshuffled]

    def _score(self) -> dict[str, float]:
        """Score what the model generates, in the main process; the others get the figure that decides."""
        model, scores = self.model, {}
        if is_sharded(model):
            weights = {name: gather_full(parameter) for name, parameter in model.named_parameters()}
            model = artifact.assemble(model.config, model.vocabulary, merged_weights(model, weights))
        if self.scorer and self.workers.is_main:
            scores = self.scorer.score(model)
        if self.metric != "loss":
            (scores[self.metric],) = self.workers.all_sum([scores.get(self.metric, 0.0)])
        return scores


def _sums(loss: Loss) -> Sums:
    return np.array([loss.negative_log_likelihood, loss.correct, loss.tokens], dtype=np.float64)


def _means(sums: list[float]) -> tuple[float, float]:
    """Return negative log-likelihood and accuracy per token."""
    nll, correct, tokens = sums
    return (nll / tokens, correct / tokens) if tokens else (math.nan, math.nan)


def find_problems(
    validation: Validation, progress: Progress, training: TrainingConfig, ignored_source: str
) -> list[str]:
    """Return warnings: that training diverges, or (``ignored_source``) that the model ignores its source."""
    problems = []
    if not math.isfinite(progress.best_loss):
        problems.append(f"training diverges: the validation loss is {validation.loss}. {_REMEDY}")
    elif not validation.loss <= progress.best_loss + DIVERGED:  # also true of NaN
        problems.append(
            f"training diverges: the validation loss has grown from {progress.best_loss:.2f} to "
            f"{validation.loss:.2f}. {_REMEDY} best/ still holds the best model"
        )
    late_enough = progress.finished or progress.step >= 2 * training.warmup
    if validation.ignores_source and progress.step >= EARLY_STEPS and late_enough:
        problems.append(f"{ignored_source} If the data are right, train longer. {_REMEDY}")
    return problems
