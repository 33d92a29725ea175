"""Several models that decide together."""

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
    """Each model in the middle of the same sentences."""

    states: list[State]

    @property
    def length(self) -> int:
        """How many target tokens have been read."""
        return self.states[0].length

    def select(self, rows: Tensor) -> None:
        """Keep these targets, in this order."""
        for state in self.states:
            state.select(rows)


class Ensemble:
    """Models of one vocabulary; the next token's probability is the mean of theirs."""

    def __init__(self, models: Sequence[SequenceModel[Any, Any]]) -> None:
        self.models = list(models)
        self.vocabulary: Vocabulary = self.models[0].vocabulary
        if any(model.vocabulary != self.vocabulary for model in self.models):
            raise DataError(
                "the models have different vocabularies", "train them with one tokenizer to use them together"
            )

    @property
    def max_length(self) -> int | None:
        """The longest source or target that all of them can read."""
        limits = [model.max_length for model in self.models if model.max_length is not None]
        return min(limits, default=None)

    @property
    def device(self) -> torch.device:
        """Where the first one computes."""
        return self.models[0].device

    def encode(self, source: Tensor) -> list[Any]:
        """Each reads the source: tokens (batch, source)."""
        return [model.encode(source) for model in self.models]

    def start(self, memory: list[Any], capacity: int = 128) -> EnsembleState:
        """Before the first target token."""
        return EnsembleState(
            [model.start(read, capacity) for model, read in zip(self.models, memory, strict=True)]
        )

    def step(self, tokens: Tensor, state: EnsembleState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token a target, (targets,) → logarithms of mean probabilities, (targets, vocabulary)."""
        each = [
            model.step(tokens, own, record).float().log_softmax(dim=-1)
            for model, own in zip(self.models, state.states, strict=True)
        ]
        return torch.stack(each).logsumexp(dim=0) - math.log(len(each))

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """The weights of all of them, one model after the other."""
        every = AttentionWeights()
        for model in self.models:
            own = model.attention(source, target)
            every.encoder += own.encoder
            every.decoder += own.decoder
            every.encoder_decoder += own.encoder_decoder
        return every
