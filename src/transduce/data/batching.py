"""Batches by token budget: similar lengths together, in an order that seed and epoch determine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.config import Vocabulary
from transduce.data.factors import NONE
from transduce.data.prepared import Pairs

Indices = npt.NDArray[np.int64]
Row = npt.NDArray[np.generic]
_FEW_BATCHES, _EXTRA_WIDTH = 120, 0.5  # the latter in tokens
_ROUND_BATCHES = 20  # enough to sort pairs by length with little padding


@dataclass(frozen=True)
class Batch:
    """Padded pairs, ready for a model."""

    source: Tensor  # (batch, source), ends in eos; with factors (batch, source, 1 + factors)
    target: Tensor  # (batch, target), starts with bos: the decoder's input
    labels: Tensor  # (batch, target), ends in eos: the tokens to predict

    def to(self, device: torch.device) -> "Batch":
        """Move the batch to a device."""
        return Batch(self.source.to(device), self.target.to(device), self.labels.to(device))


def plan_batches(
    source_lengths: Indices, target_lengths: Indices, *, max_tokens: int, seed: int, epoch: int
) -> list[Indices]:
    """Return the indices of the pairs in each batch; the result depends on the arguments alone.

    In a batch, rows × longest source and rows × longest target are each at most ``max_tokens``; a single pair
    that is longer gets a batch of its own.
    """
    if not len(source_lengths):
        return []
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(source_lengths))
    order = order[_side_by_side(source_lengths[order], target_lengths[order], max_tokens, generator)]
    longer = np.maximum(source_lengths, target_lengths)[order]
    batches = _cut(order, longer, max_tokens, first=generator.random())
    return [batches[index] for index in generator.permutation(len(batches))]


def plan_repeated(
    source_lengths: Indices,
    target_lengths: Indices,
    counts: Indices,
    *,
    max_tokens: int,
    seed: int,
    epoch: int,
) -> list[Indices]:
    """Return batches in which each pair is as often as ``counts`` says; see `plan_batches`.

    An epoch consists of rounds, so that the copies of a pair, which have the same length, do not all fall
    into one batch but are spread over the epoch.
    """
    tokens = int((np.maximum(source_lengths, target_lengths) * counts).sum())
    most = max(1, tokens // (_ROUND_BATCHES * max_tokens))
    rounds = _spread(counts, min(int(counts.max(initial=1)), most), np.random.default_rng([seed, epoch, 1]))
    return [
        rows[batch]
        for number, rows in enumerate(rounds)
        for batch in plan_batches(
            source_lengths[rows],
            target_lengths[rows],
            max_tokens=max_tokens,
            seed=seed,
            epoch=epoch * len(rounds) + number,
        )
    ]


def _spread(counts: Indices, rounds: int, generator: np.random.Generator) -> list[Indices]:
    """Return the pairs of each round: all copies, those of one pair at even distances."""
    first = generator.integers(rounds, size=len(counts))
    pairs = np.repeat(np.arange(len(counts)), counts)
    copy = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = (first[pairs] + copy * rounds // counts[pairs]) % rounds
    return [pairs[place == number] for number in range(rounds)]


def _side_by_side(
    source: Indices, target: Indices, max_tokens: int, generator: np.random.Generator
) -> Indices:
    """Return an order in which neighbors have similar lengths on both sides; equal pairs stay in order."""
    # Scaled as if both languages needed equally many tokens: otherwise all padding would be on one side.
    ratio = float(target.sum() / source.sum())
    scaled_source, scaled_target = source * max(1, ratio), target * max(1, 1 / ratio)
    longer, difference = np.maximum(scaled_source, scaled_target), scaled_target - scaled_source
    # Pairs are sorted into strips by the longer side; within a strip by the difference, up and down in turn.
    # With few batches, the same pairs would always meet: strips are then wider, and begin elsewhere in every
    # epoch.
    width = 1 + min(_EXTRA_WIDTH, _FEW_BATCHES * _EXTRA_WIDTH * max_tokens / float(longer.sum()))
    strip = np.floor(longer / width + generator.random())
    place = np.floor(difference + generator.random())
    return np.lexsort((np.where(strip % 2, -place, place), strip))


def _cut(order: Indices, lengths: Indices, max_tokens: int, first: float = 1.0) -> list[Indices]:
    """Cut into the largest batches that fit; the first is shortened, so that epochs are cut differently."""
    batches: list[Indices] = []
    begin, share = 0, first
    while begin < len(order):
        # The longest row is at least as long as the first, so that no more rows than these can fit.
        longest = np.maximum.accumulate(lengths[begin : begin + max(1, max_tokens // lengths[begin])])
        too_many = longest * np.arange(1, len(longest) + 1) > max_tokens
        rows = int(np.argmax(too_many)) if too_many.any() else len(longest)
        end = begin + max(1, int(rows * share))
        batches.append(order[begin:end])
        begin, share = end, 1.0
    return batches


def group_steps(batches: list[Indices], target_lengths: Indices, batch_tokens: int) -> list[list[Indices]]:
    """Group batches into steps of at least ``batch_tokens`` target tokens, not counting padding."""
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
    """Return the share of padding in these batches."""
    area = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - float(lengths[np.concatenate(batches)].sum()) / area if area else 0.0


def collate(pairs: Pairs, indices: Indices, vocabulary: Vocabulary) -> Batch:
    """Read these pairs and pad them to a batch."""
    return pad(
        [pairs.source_row(index) for index in indices], [pairs.target[index] for index in indices], vocabulary
    )


def pad(sources: list[Row], targets: list[Row], vocabulary: Vocabulary) -> Batch:
    """Pad rows of ids, each ending in ``eos``, to a batch."""
    source, labels = pad_rows(sources, vocabulary.pad), pad_rows(targets, vocabulary.pad)
    target = labels.roll(1, dims=1)
    target[:, 0] = vocabulary.bos
    # The decoder reads padding where the labels are padding.
    target[labels == vocabulary.pad] = vocabulary.pad
    return Batch(source, target, labels)


def pad_rows(rows: Sequence[Row | Sequence[int]], pad: int) -> Tensor:
    """Pad rows of ids at the end to one length: (rows, longest row).

    Rows of tokens and their factors, (length, 1 + factors), become (rows, longest row, 1 + factors).
    """
    columns = np.shape(rows[0])[1:]
    padded = np.full((len(rows), max(map(len, rows)), *columns), pad, dtype=np.int64)
    if columns:
        padded[..., 1:] = NONE
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)


def batches_by_length(lengths: Mapping[int, int] | Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the indices of rows with similar lengths, at most ``max_tokens`` with padding; shortest first."""
    by_row = lengths if isinstance(lengths, Mapping) else dict(enumerate(lengths))
    batch: list[int] = []
    for row in sorted(by_row, key=by_row.__getitem__):
        if batch and (len(batch) + 1) * by_row[row] > max_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
