"""Log-probabilities of given targets."""

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
from transduce.models.evaluation_mode import evaluating
from transduce.models.perplexity import perplexity

PAIRS_AHEAD = 2000  # pairs that are sorted by length together
BATCH_TOKENS = 4096  # pairs × the longest side
LONGEST = 10_000  # tokens of a text: its attention weights grow with their square
POSITIONS = 1024  # positions whose logits are in memory at once


@dataclass(frozen=True)
class Score:
    """The log-probability of a target, in natural logarithms."""

    tokens: list[str]
    log_probabilities: list[float]  # of each token and of the end of the sentence

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole target."""
        return math.fsum(self.log_probabilities)


@dataclass
class Total:
    """The sum of a corpus' scores."""

    pairs: int = 0
    tokens: int = 0  # including the ends of sentences
    log_probability: float = 0.0

    def add(self, score: Score) -> None:
        """Add the score of one pair."""
        self.pairs += 1
        self.tokens += len(score.log_probabilities)
        self.log_probability += score.log_probability

    @property
    def perplexity(self) -> float:
        """The perplexity per token, including the ends of sentences, as in validation during training."""
        return perplexity(-self.log_probability / max(1, self.tokens))


def score_pairs(
    model: TextToText,
    tokenizer: TokenizerPair,
    sources: Iterable[str],
    targets: Iterable[str],
    *,
    names: tuple[str, str] = ("source", "target"),
    ahead: int = PAIRS_AHEAD,
    max_tokens: int = BATCH_TOKENS,
) -> Iterator[Score]:
    """Yield the score of each pair, in order; ``ahead`` pairs are read and sorted by length together.

    The tokens that every target begins with, such as that of its language, are read and not scored.
    ``names`` are the names of the two texts in error messages, such as file names.
    """
    pairs = _zip_lines(sources, targets, names)
    first = 1
    while chunk := list(islice(pairs, ahead)):
        source_ids = tokenizer.encode_source([source for source, _ in chunk])
        target_ids = tokenizer.encode_target([target for _, target in chunk])
        for rows, name, frame in (
            (source_ids, names[0], tokenizer.source_frame),
            (target_ids, names[1], tokenizer.target_frame),
        ):
            _check_lengths(rows, name, first, sum(frame), min(model.max_length or LONGEST, LONGEST))
        yield from _score_chunk(model, tokenizer, source_ids, target_ids, max_tokens)
        first += len(chunk)


def _zip_lines(
    sources: Iterable[str], targets: Iterable[str], names: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            shorter, longer = names if source is None else names[::-1]
            raise DataError(
                f"{shorter} has {number:,} lines, and {longer} has more",
                "give files whose lines correspond one to one",
            )
        yield source, target


def _check_lengths(rows: list[list[int]], name: str, first: int, frame: int, limit: int) -> None:
    for number, ids in enumerate(rows, first):
        if len(ids) <= frame:  # a line of white space has no tokens but those around it, such as ``eos``
            raise DataError(f"{name}, line {number:,}: empty", "remove this line from both files")
        if len(ids) > limit:
            raise DataError(
                f"{name}, line {number:,}: {len(ids):,} tokens, but at most {limit:,} can be scored",
                "remove this line from both files",
            )


def _score_chunk(
    model: TextToText,
    tokenizer: TokenizerPair,
    sources: list[list[int]],
    targets: list[list[int]],
    max_tokens: int,
) -> list[Score]:
    scores: dict[int, Score] = {}
    before, _ = tokenizer.target_frame
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for rows in batches_by_length(lengths, max_tokens):
        batch = pad(
            [np.array(sources[row]) for row in rows],
            [np.array(targets[row]) for row in rows],
            tokenizer.vocabulary,
        )
        for row, values in zip(rows, log_probabilities(model, batch), strict=True):
            scores[row] = Score(readable(tokenizer.target, targets[row][before:-1]), values[before:])
    return [scores[row] for row in range(len(scores))]


@torch.no_grad()
def log_probabilities(model: TextToText, batch: Batch) -> list[list[float]]:
    """Return the log-probabilities of each row's labels, without padding and without dropout.

    Padding is never projected, and only `POSITIONS` rows of logits, (positions, vocabulary), exist at once.
    """
    batch = batch.to(model.device)
    is_token = batch.labels != model.vocabulary.pad
    with evaluating(model):
        memory: Any = model.encode(batch.source)
        hidden = model.decode(batch.target, memory)
    hidden, labels = hidden[is_token], batch.labels[is_token]
    values: list[float] = []
    for begin in range(0, len(labels), POSITIONS):
        part = slice(begin, begin + POSITIONS)
        log_softmax = model.output.logits(hidden[part]).log_softmax(dim=-1)
        values += log_softmax.gather(1, labels[part, None])[:, 0].tolist()
    remaining = iter(values)
    return [list(islice(remaining, length)) for length in is_token.sum(dim=1).tolist()]
