"""Ensembles: several models that predict the next token together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.config import Vocabulary
from transduce.errors import DataError
from transduce.models.protocol import AttentionWeights, SequenceModel, State


@dataclass
class EnsembleState:
    """The decoding states of all models, for the same sentences."""

    states: list[State]

    @property
    def length(self) -> int:
        """The number of target tokens read so far."""
        return self.states[0].length

    def select(self, rows: Tensor) -> None:
        """Keep these targets, in this order, in every model."""
        for state in self.states:
            state.select(rows)


class Ensemble:
    """Models with one vocabulary; the probability of the next token is the mean of theirs."""

    def __init__(self, models: Sequence[SequenceModel[Any, Any]]) -> None:
        self.models = list(models)
        self.vocabulary: Vocabulary = self.models[0].vocabulary
        if any(model.vocabulary != self.vocabulary for model in self.models):
            raise DataError(
                "the models have different vocabularies",
                "use models that were trained with the same tokenizer",
            )

    @property
    def max_length(self) -> int | None:
        """The longest source or target that all models can read; ``None`` if there is no limit."""
        limits = [model.max_length for model in self.models if model.max_length is not None]
        return min(limits, default=None)

    @property
    def device(self) -> torch.device:
        """The device of the first model."""
        return self.models[0].device

    def encode(self, source: Tensor) -> list[Any]:
        """Encode the source, (batch, source), with every model."""
        return [model.encode(source) for model in self.models]

    def start(self, memory: list[Any], capacity: int = 128) -> EnsembleState:
        """Return the state before the first target token."""
        return EnsembleState(
            [model.start(own, capacity) for model, own in zip(self.models, memory, strict=True)]
        )

    def step(self, tokens: Tensor, state: EnsembleState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per target, (targets,), and return the log of the mean probabilities of the next.

        The result is (targets, vocabulary).
        """
        log_probabilities = [
            model.step(tokens, own, record).float().log_softmax(dim=-1)
            for model, own in zip(self.models, state.states, strict=True)
        ]
        return torch.stack(log_probabilities).logsumexp(dim=0) - math.log(len(self.models))

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the attention weights of all models, one model after the other."""
        weights = AttentionWeights()
        for model in self.models:
            own = model.attention(source, target)
            weights.encoder += own.encoder
            weights.decoder += own.decoder
            weights.encoder_decoder += own.encoder_decoder
        return weights
