"""How likely a model finds given targets."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import torch

from transduce.data.batching import Batch, batches_by_length, pad
from transduce.data.readable import readable
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError
from transduce.models.build import TextToText

PAIRS = 2000  # that are sorted by length at a time
TOKENS = 4096  # in a batch: pairs × the longest side
POSITIONS = 1024  # whose logits are held at a time


@dataclass(frozen=True)
class Score:
    """A target's probability, in natural logarithms."""

    tokens: list[str]
    log_probabilities: list[float]  # a token each, and the end

    @property
    def log_probability(self) -> float:
        """Of the whole target."""
        return math.fsum(self.log_probabilities)


@dataclass
class Total:
    """The scores of a corpus."""

    pairs: int = 0
    tokens: int = 0  # with the ends
    log_probability: float = 0.0

    def add(self, score: Score) -> None:
        """One more pair."""
        self.pairs += 1
        self.tokens += len(score.log_probabilities)
        self.log_probability += score.log_probability

    @property
    def perplexity(self) -> float:
        """Of a token, ends included: what training's validation reports."""
        return math.exp(min(-self.log_probability / max(1, self.tokens), 100))


def score_pairs(
    model: TextToText,
    tokenizer: TokenizerPair,
    sources: Iterable[str],
    targets: Iterable[str],
    *,
    names: tuple[str, str] = ("source", "target"),
    ahead: int = PAIRS,
    max_tokens: int = TOKENS,
) -> Iterator[Score]:
    """A score for each pair, in order; so many pairs are read ``ahead`` and sorted by length.

    ``names`` say in messages where a line is: the files' names, if there are any.
    """
    pairs = _together(sources, targets, names)
    first = 1
    while chunk := list(islice(pairs, ahead)):
        source_ids = tokenizer.encode_source([source for source, _ in chunk])
        target_ids = tokenizer.encode_target([target for _, target in chunk])
        for side, name in ((source_ids, names[0]), (target_ids, names[1])):
            _check(side, name, first, model.max_length)
        yield from _score_chunk(model, tokenizer, source_ids, target_ids, max_tokens)
        first += len(chunk)


def _together(
    sources: Iterable[str], targets: Iterable[str], names: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            shorter, longer = names if source is None else names[::-1]
            raise DataError(
                f"{shorter} has {number:,} lines, and {longer} has more", "give files that go line by line"
            )
        yield source, target


def _check(rows: list[list[int]], name: str, first: int, most: int | None) -> None:
    for number, ids in enumerate(rows, first):
        if len(ids) < 2:  # of nothing but white space, only ``eos`` is left
            raise DataError(f"{name}, line {number:,}: empty", "leave this line out on both sides")
        if most is not None and len(ids) > most:
            raise DataError(
                f"{name}, line {number:,}: {len(ids):,} tokens, but the model can read {most:,}",
                "leave this line out on both sides",
            )


def _score_chunk(
    model: TextToText,
    tokenizer: TokenizerPair,
    sources: list[list[int]],
    targets: list[list[int]],
    max_tokens: int,
) -> list[Score]:
    scores: dict[int, Score] = {}
    longer = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for rows in batches_by_length(longer, max_tokens):
        batch = pad(
            [np.array(sources[row]) for row in rows],
            [np.array(targets[row]) for row in rows],
            tokenizer.vocabulary,
        )
        for row, values in zip(rows, log_probabilities(model, batch), strict=True):
            scores[row] = Score(readable(tokenizer.target, targets[row][:-1]), values)
    return [scores[row] for row in range(len(scores))]


@torch.no_grad()
def log_probabilities(model: TextToText, batch: Batch) -> list[list[float]]:
    """Of each row's labels that are not padding, without dropout.

    Padding is never projected, and only some positions' logits, (positions, vocabulary), exist at a time.
    """
    batch = batch.to(model.device)
    real = batch.labels != model.vocabulary.pad
    was_training = model.training
    try:
        model.eval()
        memory: Any = model.encode(batch.source)
        hidden = model.decode(batch.target, memory)
    finally:
        model.train(was_training)
    hidden, labels = hidden[real], batch.labels[real]
    found: list[float] = []
    for begin in range(0, len(labels), POSITIONS):
        part = slice(begin, begin + POSITIONS)
        normalised = model.output.logits(hidden[part]).log_softmax(dim=-1)
        found += normalised.gather(1, labels[part, None])[:, 0].tolist()
    rest = iter(found)
    return [list(islice(rest, length)) for length in real.sum(dim=1).tolist()]
