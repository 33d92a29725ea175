"""What is learned: an objective yields batches and their loss; the trainer knows no more."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from transduce.config import TrainingConfig
from transduce.data.batching import Batch, Row, batches_by_length, collate, group_steps, pad, plan_batches
from transduce.data.prepared import Pairs
from transduce.data.resegment import Resegmentation
from transduce.data.tokenizer import TokenizerPair
from transduce.models.protocol import Model, SequenceToSequenceModel
from transduce.training.loss import Loss, chunked_loss, r_drop_loss

Indices = npt.NDArray[np.int64]

CUT_ANEW = 1 << 15  # texts: more than there are in a step


ModelT_contra = TypeVar("ModelT_contra", contravariant=True)


@dataclass(frozen=True)
class Words:
    """How a run speaks of its data."""

    example: str  # what is learned from
    unit: str  # what is predicted, and counted
    perplexity: bool  # is a figure that people know
    ignored: str  # when it makes no difference what the model reads


TEXT = Words(
    "pair",
    "token",
    perplexity=True,
    ignored="the model ignores its source: other sources would do as well. Are the files aligned? "
    "(transduce check tells.)",
)


class Objective(Protocol[ModelT_contra]):
    """Data and loss of one way to train, for models that offer what it takes."""

    words: Words
    longest: int | None  # source, in tokens; of what turns one text into another

    def steps(self, epoch: int) -> list[list[Indices]]:
        """Which examples make up each step of an epoch, batch by batch: a function of the epoch alone."""
        ...

    def pieces(self, model: ModelT_contra, indices: Indices, epoch: int) -> list[Indices]:
        """A batch as it is computed in training: whole, unless it is larger than was planned."""
        ...

    def loss(self, model: ModelT_contra, indices: Indices, epoch: int) -> Loss:
        """The summed loss of these examples."""
        ...

    def blind_loss(self, model: ModelT_contra, indices: Indices) -> Loss | None:
        """The same with every example's input exchanged for another's; ``None`` if there is no such thing."""
        ...


class WithLoss(nn.Module):
    """A model whose forward pass gives the loss of an objective: what several processes can share."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, objective: Objective[Any], indices: Indices, epoch: int, blind: bool = False
    ) -> Loss | None:
        """See `Objective`."""
        if blind:
            return objective.blind_loss(self.model, indices)
        return objective.loss(self.model, indices, epoch)


class SequenceToSequence:
    """Read a source, predict its target."""

    words = TEXT

    def __init__(
        self, pairs: Pairs, training: TrainingConfig, tokenizer: TokenizerPair | None = None
    ) -> None:
        self.pairs, self.training = pairs, training
        self.source_lengths, self.target_lengths = pairs.source.lengths, pairs.target.lengths
        self.longest: int | None = int(self.source_lengths.max(initial=1))
        p = training.bpe_dropout
        anew = Resegmentation(pairs, tokenizer, p, training.seed) if p and tokenizer else None
        # Whoever asks how long a text has become will read it next.
        self._anew = lru_cache(maxsize=CUT_ANEW)(anew.read) if anew else None

    def steps(self, epoch: int) -> list[list[Indices]]:
        """See `Objective`."""
        batches = plan_batches(
            self.source_lengths,
            self.target_lengths,
            max_tokens=self.training.max_tokens,
            seed=self.training.seed,
            epoch=epoch,
        )
        return group_steps(batches, self.target_lengths, self.training.batch_tokens or 1)

    def pieces(self, model: SequenceToSequenceModel, indices: Indices, epoch: int) -> list[Indices]:
        """See `Objective`: BPE-dropout makes texts longer."""
        if self._anew is None:
            return [indices]
        most = self.training.max_tokens
        longer = [max(map(len, self._cut_anew(model, index, epoch))) for index in indices]
        if len(indices) * max(longer) <= most:
            return [indices]
        return [indices[rows] for rows in batches_by_length(longer, most)]

    def loss(self, model: SequenceToSequenceModel, indices: Indices, epoch: int) -> Loss:
        """See `Objective`."""
        return batch_loss(
            model,
            self._read(model, indices, epoch),
            self.training.label_smoothing,
            r_drop=self.training.r_drop if model.training else 0.0,
        )

    def blind_loss(self, model: SequenceToSequenceModel, indices: Indices) -> Loss | None:
        """See `Objective`."""
        if len(self.pairs) < 2:
            return None
        others = np.roll(indices, 1) if len(indices) > 1 else (indices + 1) % len(self.pairs)
        batch = replace(self._read(model, indices, epoch=0), source=self._read(model, others, epoch=0).source)
        return batch_loss(model, batch, self.training.label_smoothing)

    def _read(self, model: SequenceToSequenceModel, indices: Indices, epoch: int) -> Batch:
        if self._anew is not None and model.training:
            sources, targets = zip(*(self._cut_anew(model, index, epoch) for index in indices), strict=True)
            batch = pad(list(sources), list(targets), model.vocabulary)
        else:
            batch = collate(self.pairs, indices, model.vocabulary)
        return batch.to(model.device)

    def _cut_anew(self, model: SequenceToSequenceModel, index: int, epoch: int) -> tuple[Row, Row]:
        read, limit = self._anew, model.max_length
        if read is None:
            raise TypeError("without BPE-dropout, texts stay as they are")
        return read("source", index, epoch, limit), read("target", index, epoch, limit)


def batch_loss(model: SequenceToSequenceModel, batch: Batch, smoothing: float, r_drop: float = 0.0) -> Loss:
    """Of a batch that is read already; with ``r_drop``, of two passes over it (see `r_drop_loss`)."""
    pad_id = model.vocabulary.pad
    if r_drop:
        twice = torch.cat([batch.source] * 2), torch.cat([batch.target] * 2)
        hidden = torch.stack(model.decode(twice[1], model.encode(twice[0])).chunk(2))
        return r_drop_loss(
            hidden, model.output.weight, batch.labels, pad=pad_id, smoothing=smoothing, weight=r_drop
        )
    hidden = model.decode(batch.target, model.encode(batch.source))
    return chunked_loss(hidden, model.output.weight, batch.labels, pad=pad_id, smoothing=smoothing)
