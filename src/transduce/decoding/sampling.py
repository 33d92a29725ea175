"""Targets drawn at random: ancestral sampling, from all tokens or from the likely ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.candidates import no_numbers
from transduce.decoding.hypotheses import Beams, Candidates, Hypothesis
from transduce.decoding.rules import Rule, unspeakable
from transduce.models.protocol import SequenceModel


@dataclass(frozen=True)
class Sampling:
    """From which tokens one is drawn."""

    temperature: float = 1.0  # logits are divided by it: below 1 the likely ones become likelier
    top_k: int = 0  # so many of the likeliest; 0 for all
    top_p: float = 1.0  # the likeliest that together have this probability (nucleus; Holtzman et al., 2020)

    def narrow(self, scores: Tensor) -> Tensor:
        """Logits (…, vocabulary), changed so that a draw from their softmax is a draw from these tokens."""
        scores = scores / self.temperature
        if self.top_k:
            least = scores.topk(min(self.top_k, scores.size(-1)), dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p < 1:
            ordered, places = scores.softmax(dim=-1).sort(dim=-1, descending=True)
            # A token stays while those before it have less than top_p; the first one always does.
            surplus = ordered.cumsum(dim=-1) - ordered >= self.top_p
            scores = scores.masked_fill(surplus.scatter(-1, places, surplus), -torch.inf)
        return scores


@torch.inference_mode()
def sample(
    model: SequenceModel[Any, Any],
    source: Tensor,
    max_lengths: Sequence[int],
    sampling: Sampling,
    draws: Sequence[np.random.Generator],
    *,
    count: int = 1,
    rules: Sequence[Rule] = (),
) -> list[list[Hypothesis]]:
    """For each source, (batch, source), ``count`` targets, the most likely first.

    The log-probabilities are the model's own, whatever the temperature; the score is their sum. Each source
    has its own ``draws``, so that its neighbours change nothing. A target that the rules leave without any
    way to go on is dropped.
    """
    special = model.vocabulary
    done: list[list[Hypothesis]] = [[] for _ in source]
    state = model.start(model.encode(source), max(max_lengths, default=1))
    if count > 1:
        state.select(torch.arange(len(source), device=source.device)[:, None].expand(-1, count))
    # Each draw is a sentence of its own here: none gives way to another.
    beams = Beams.start([sentence for sentence in range(len(source)) for _ in range(count)])
    luck = _uniform(draws, max_lengths, count).to(source.device)
    forbid = (unspeakable(special), *rules)
    last = source.new_full((len(beams.sentences),), special.bos)
    while beams.sentences:
        scores = model.step(last, state).float()[:, None]  # (draws, 1, vocabulary)
        normaliser = scores.logsumexp(dim=-1)
        if normaliser.isnan().any():
            raise no_numbers()
        for rule in forbid:
            rule(scores, beams)
        below = sampling.narrow(scores[:, 0]).softmax(dim=-1).double().cumsum(dim=-1)  # (draws, vocabulary)
        total = below[:, -1:]
        # The first token whose chances, with those before it, exceed a share of all that was drawn.
        drawn = torch.searchsorted(below, luck[:, beams.length, None] * total, right=True)
        stuck = total[:, 0].isnan().tolist()
        drawn = drawn.clamp(max=below.size(1) - 1)
        sums = torch.from_numpy(beams.sums).to(scores.device) + scores[:, 0].gather(1, drawn) - normaliser
        new, going = Candidates.of(sums, torch.zeros_like(drawn), drawn), []
        for row, sentence in enumerate(beams.sentences):
            token = int(new.tokens[row, 0])
            if stuck[row]:
                continue
            if token == special.eos or beams.length + 1 >= max_lengths[sentence]:
                tokens, steps = beams.spoken(new, row, 0)
                said = tokens[:-1] if token == special.eos else tokens
                done[sentence].append(Hypothesis(said, steps, sum(steps)))
            else:
                going.append(row)
        origins = beams.grow(new, going)
        last = beams.last(source.device)
        if origins is not None:
            kept = torch.from_numpy(origins[:, 0]).to(source.device)
            luck = luck[kept]
            state.select(kept)
    return [sorted(found, key=lambda one: -one.score) for found in done]


def _uniform(draws: Sequence[np.random.Generator], lengths: Sequence[int], count: int) -> Tensor:
    """A number from 0 to 1 for each step of each target, (sources · count, the greatest length)."""
    numbers = np.zeros((len(draws), count, max(lengths, default=1)))
    for row, (generator, length) in enumerate(zip(draws, lengths, strict=True)):
        numbers[row, :, :length] = generator.random((count, length))
    return torch.from_numpy(numbers).flatten(0, 1)
