"""Translation: predict a target from its source."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from transduce.config import TrainingConfig
from transduce.data.batching import (
    Batch,
    Row,
    batches_by_length,
    collate,
    group_steps,
    pad,
    plan_batches,
    plan_repeated,
)
from transduce.data.prepared import Pairs
from transduce.data.resegment import Resegmentation
from transduce.data.tokenizer import TokenizerPair
from transduce.models.protocol import SequenceToSequenceModel
from transduce.training.loss import Loss, chunked_loss, r_drop_loss
from transduce.training.objectives.objective import Indices, other_examples

RESEGMENTED_TEXTS = 1 << 15  # kept in memory: more than one step has


class TranslationObjective:
    """Read a source and predict its target; in training, with BPE-dropout and R-Drop if configured."""

    example = "pair"
    ignored_source = (
        "the model ignores its source: the sources of other pairs give the same loss. Check that source and "
        "target are aligned: transduce check."
    )

    def __init__(
        self, pairs: Pairs, training: TrainingConfig, tokenizer: TokenizerPair | None = None
    ) -> None:
        self.pairs, self.training = pairs, training
        self.source_lengths, self.target_lengths = pairs.source.lengths, pairs.target.lengths
        self.longest_source: int | None = int(self.source_lengths.max(initial=1))
        longer_sides = np.maximum(self.source_lengths, self.target_lengths)
        self.shortest = int(longer_sides.min()) if len(longer_sides) else 0
        p = training.bpe_dropout
        resegmentation = Resegmentation(pairs, tokenizer, p, training.seed) if p and tokenizer else None
        # `microbatches` needs the lengths of texts that `loss` reads right after it.
        self._read_resegmented = (
            lru_cache(maxsize=RESEGMENTED_TEXTS)(resegmentation.read) if resegmentation else None
        )

    def steps(self, epoch: int) -> list[list[Indices]]:
        """Return the batches of each step of an epoch."""
        lengths, seed, limit = (
            (self.source_lengths, self.target_lengths),
            self.training.seed,
            self.training.max_tokens,
        )
        if mixture := self.pairs.mixture:
            counts = mixture.counts(seed, epoch)
            batches = plan_repeated(*lengths, counts, max_tokens=limit, seed=seed, epoch=epoch)
        else:
            batches = plan_batches(*lengths, max_tokens=limit, seed=seed, epoch=epoch)
        return group_steps(batches, self.target_lengths, self.training.batch_tokens or 1)

    def microbatches(self, model: SequenceToSequenceModel, indices: Indices, epoch: int) -> list[Indices]:
        """Split a batch that BPE-dropout has made larger than ``max_tokens``."""
        if self._read_resegmented is None:
            return [indices]
        limit = self.training.max_tokens
        lengths = [max(map(len, self._resegment(model, index, epoch))) for index in indices]
        if len(indices) * max(lengths) <= limit:
            return [indices]
        return [indices[rows] for rows in batches_by_length(lengths, limit)]

    def loss(self, model: SequenceToSequenceModel, indices: Indices, epoch: int) -> Loss:
        """Return the summed loss of these pairs."""
        return batch_loss(
            model,
            self.read(model, indices, epoch),
            self.training.label_smoothing,
            r_drop=self.training.r_drop if model.training else 0.0,
        )

    def shuffled_source_loss(self, model: SequenceToSequenceModel, indices: Indices) -> Loss | None:
        """Return the loss when each target gets the source of another pair."""
        if len(self.pairs) < 2:
            return None
        others = other_examples(indices, len(self.pairs))
        batch = replace(self.read(model, indices, epoch=0), source=self.read(model, others, epoch=0).source)
        return batch_loss(model, batch, self.training.label_smoothing)

    def read(self, model: SequenceToSequenceModel, indices: Indices, epoch: int) -> Batch:
        """Return these pairs as a padded batch on the model's device, resegmented in training."""
        if self._read_resegmented is not None and model.training:
            sources, targets = zip(*(self._resegment(model, index, epoch) for index in indices), strict=True)
            batch = pad(list(sources), list(targets), model.vocabulary)
        else:
            batch = collate(self.pairs, indices, model.vocabulary)
        return batch.to(model.device)

    def _resegment(self, model: SequenceToSequenceModel, index: int, epoch: int) -> tuple[Row, Row]:
        read, limit = self._read_resegmented, model.max_length
        if read is None:
            raise TypeError("texts are resegmented only with BPE-dropout")
        return read("source", index, epoch, limit), read("target", index, epoch, limit)


def batch_loss(model: SequenceToSequenceModel, batch: Batch, smoothing: float, r_drop: float = 0.0) -> Loss:
    """Return the summed loss of a padded batch; with ``r_drop``, of two passes over it (`r_drop_loss`)."""
    pad_id, (weight, bias) = model.vocabulary.pad, model.output.projection()
    if r_drop:
        sources, targets = torch.cat([batch.source] * 2), torch.cat([batch.target] * 2)
        hidden = torch.stack(model.decode(targets, model.encode(sources)).chunk(2))
        return r_drop_loss(
            hidden,
            weight,
            batch.labels,
            pad=pad_id,
            smoothing=smoothing,
            weight=r_drop,
            bias=bias,
        )
    hidden = model.decode(batch.target, model.encode(batch.source))
    return chunked_loss(hidden, weight, batch.labels, pad=pad_id, smoothing=smoothing, bias=bias)
