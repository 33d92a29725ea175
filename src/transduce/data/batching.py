"""Batches by token budget: sentences of like length together, in an order that seed and epoch decide."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.config import Vocabulary
from transduce.data.prepared import Pairs

Indices = npt.NDArray[np.int64]
Row = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Batch:
    """Padded pairs, ready for a model."""

    source: Tensor  # (batch, source), ends in eos
    target: Tensor  # (batch, target), starts with bos: what the decoder reads
    labels: Tensor  # (batch, target), ends in eos: what it should say

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(self.source.to(device), self.target.to(device), self.labels.to(device))


def plan_batches(
    source_lengths: Indices, target_lengths: Indices, *, max_tokens: int, seed: int, epoch: int
) -> list[Indices]:
    """Which pairs go together, batch by batch: a function of its arguments alone.

    In a batch, rows × the longest source and rows × the longest target are each at most ``max_tokens``
    (a single pair that is longer gets a batch of its own).
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(source_lengths))
    # By the longer side; among those, by how much longer it is, up and down in turn, so that neighbours are
    # alike on both sides. Among equals the permutation decides, anew in every epoch.
    source, target = source_lengths[order], target_lengths[order]
    longer, difference = np.maximum(source, target), target - source
    order = order[np.lexsort((np.where(longer % 2, -difference, difference), longer))]
    batches = _cut(order, source_lengths, target_lengths, max_tokens)
    return [batches[index] for index in generator.permutation(len(batches))]


def _cut(order: Indices, source_lengths: Indices, target_lengths: Indices, max_tokens: int) -> list[Indices]:
    batches, begin, longest = [], 0, 0
    lengths = np.maximum(source_lengths[order], target_lengths[order]).tolist()
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if index > begin and (index - begin + 1) * longest > max_tokens:
            batches.append(order[begin:index])
            begin, longest = index, length
    if begin < len(order):
        batches.append(order[begin:])
    return batches


def group_steps(batches: list[Indices], target_lengths: Indices, batch_tokens: int) -> list[list[Indices]]:
    """Batches whose gradients make one step: as many as reach ``batch_tokens`` real target tokens."""
    steps: list[list[Indices]] = []
    current: list[Indices] = []
    tokens = 0
    for batch in batches:
        current.append(batch)
        tokens += int(target_lengths[batch].sum())
        if tokens >= batch_tokens:
            steps.append(current)
            current, tokens = [], 0
    return [*steps, current] if current else steps


def padding_share(batches: list[Indices], lengths: Indices) -> float:
    """How much of the batches' area is padding."""
    area = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - float(lengths[np.concatenate(batches)].sum()) / area if area else 0.0


def collate(pairs: Pairs, indices: Indices, vocabulary: Vocabulary) -> Batch:
    """Read these pairs and pad them."""
    return pad(
        [pairs.source[index] for index in indices], [pairs.target[index] for index in indices], vocabulary
    )


def pad(sources: list[Row], targets: list[Row], vocabulary: Vocabulary) -> Batch:
    """Rows of ids, each ending in ``eos``, as a batch."""
    source, labels = _pad(sources, vocabulary.pad), _pad(targets, vocabulary.pad)
    target = labels.roll(1, dims=1)
    target[:, 0] = vocabulary.bos
    # Where there is nothing to say, there is nothing to read.
    target[labels == vocabulary.pad] = vocabulary.pad
    return Batch(source, target, labels)


def _pad(rows: list[Row], pad: int) -> Tensor:
    padded = np.full((len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)
