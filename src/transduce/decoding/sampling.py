"""Sampling: random targets, from all tokens or from the likely ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.decoding.beam import read_prefix
from transduce.decoding.candidates import nan_logits
from transduce.decoding.hypotheses import Beams, Candidates, Hypothesis, without_eos
from transduce.decoding.rules import Rule, forbid_special_tokens
from transduce.decoding.shortlist import outside_of
from transduce.models.protocol import SequenceModel


@dataclass(frozen=True)
class Sampling:
    """The distribution that tokens are sampled from."""

    temperature: float = 1.0  # divides the logits; below 1, likely tokens become more likely
    top_k: int = 0  # only this many most likely tokens; 0 for all
    top_p: float = 1.0  # only the most likely tokens with this total probability (Holtzman et al., 2020)

    def narrow(self, scores: Tensor) -> Tensor:
        """Return logits (…, vocabulary) whose softmax is the distribution to sample from."""
        scores = scores / self.temperature
        if self.top_k:
            lowest = scores.topk(min(self.top_k, scores.size(-1)), dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < lowest, -torch.inf)
        if self.top_p < 1:
            ordered, places = scores.softmax(dim=-1).sort(dim=-1, descending=True)
            # A token is kept while those before it have less than top_p; the first one always is.
            surplus = ordered.cumsum(dim=-1) - ordered >= self.top_p
            scores = scores.masked_fill(surplus.scatter(-1, places, surplus), -torch.inf)
        return scores


@torch.inference_mode()
def sample(
    model: SequenceModel[Any, Any],
    source: Tensor,
    max_lengths: Sequence[int],
    sampling: Sampling,
    generators: Sequence[np.random.Generator],
    *,
    count: int = 1,
    rules: Sequence[Rule] = (),
    prefix: Sequence[int] = (),
    shortlists: Sequence[Tensor] | None = None,
) -> list[list[Hypothesis]]:
    """Return ``count`` sampled targets of each source, (batch, source), the most likely first.

    The log-probabilities are the model's own, whatever the temperature; the score is their sum. Each source
    has its own random ``generator``, so that samples do not depend on the batch, and may have a shortlist:
    the only tokens that its targets may contain. A target for which the rules forbid every next token is
    dropped. The decoder reads the ``prefix`` before the first sampled token; see `beam_search`.
    """
    special = model.vocabulary
    done: list[list[Hypothesis]] = [[] for _ in source]
    state = model.start(model.encode(source), len(prefix) + max(max_lengths, default=1))
    last = read_prefix(model, state, prefix, source.new_full((len(source),), special.bos))
    last = last.repeat_interleave(count)
    if count > 1:
        state.select(torch.arange(len(source), device=source.device)[:, None].expand(-1, count))
    # Each sample is a hypothesis on its own, with a beam of 1.
    beams = Beams.start([sentence for sentence in range(len(source)) for _ in range(count)])
    uniform = _uniform_numbers(generators, max_lengths, count).to(source.device)
    all_rules = (forbid_special_tokens(special), *rules)
    outside = None if shortlists is None else outside_of(shortlists, special.target, source.device)
    while beams.sentences:
        scores = model.step(last, state).float()[:, None]  # (samples, 1, vocabulary)
        if outside is not None:
            scores.masked_fill_(outside[beams.sentences][:, None], -torch.inf)
        log_normalizer = scores.logsumexp(dim=-1)
        if log_normalizer.isnan().any():
            raise nan_logits()
        for rule in all_rules:
            rule(scores, beams)
        cumulative = (
            sampling.narrow(scores[:, 0]).softmax(dim=-1).double().cumsum(dim=-1)
        )  # (samples, vocabulary)
        total = cumulative[:, -1:]
        # Inverse transform sampling: the first token whose cumulative probability exceeds a random number.
        chosen = torch.searchsorted(cumulative, uniform[:, beams.length, None] * total, right=True)
        stuck = total[:, 0].isnan().tolist()
        chosen = chosen.clamp(max=cumulative.size(1) - 1)
        sums = (
            torch.from_numpy(beams.sums).to(scores.device) + scores[:, 0].gather(1, chosen) - log_normalizer
        )
        new, running = Candidates.of(sums, torch.zeros_like(chosen), chosen), []
        for row, sentence in enumerate(beams.sentences):
            token = int(new.tokens[row, 0])
            if stuck[row]:
                continue
            if token == special.eos or beams.length + 1 >= max_lengths[sentence]:
                tokens, steps = beams.history(new, row, 0)
                target = without_eos(tokens, special.eos)
                done[sentence].append(Hypothesis(target, steps, sum(steps)))
            else:
                running.append(row)
        origins = beams.grow(new, running)
        last = beams.last(source.device)
        if origins is not None:
            kept = torch.from_numpy(origins[:, 0]).to(source.device)
            uniform = uniform[kept]
            state.select(kept)
    return [sorted(samples, key=lambda sample: -sample.score) for samples in done]


def _uniform_numbers(generators: Sequence[np.random.Generator], lengths: Sequence[int], count: int) -> Tensor:
    """Return a number from 0 to 1 for each step of each target, (sources · count, greatest length)."""
    numbers = np.zeros((len(generators), count, max(lengths, default=1)))
    for row, (generator, length) in enumerate(zip(generators, lengths, strict=True)):
        numbers[row, :, :length] = generator.random((count, length))
    return torch.from_numpy(numbers).flatten(0, 1)
