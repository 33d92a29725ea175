"""A small beam search that tells what it does, for as long as the real one does not."""

import inspect

import pytest
import torch

from transduce.decoding.beam import Hypothesis, beam_search
from transduce.decoding.penalties import paper_penalty
from transduce.decoding.trace import Branch
from transduce.inspection import capture


@torch.no_grad()
def told_search(model, source, max_lengths, *, beam=4, penalty=None, trace=None):
    """Of one sentence, every prefix read anew: slow and plain."""
    penalty, special = penalty or paper_penalty(), model.vocabulary
    going, done = [([], [], -1)], []
    for length in range(1, max_lengths[0] + 1):
        found = []
        for tokens, steps, place in going:
            logits = model(source, torch.tensor([[special.bos, *tokens]]))[0, -1].log_softmax(-1)
            logits[[special.pad, special.bos]] = -torch.inf
            values, ids = logits.topk(min(2 * beam, len(logits)))
            pairs = zip(ids.tolist(), values.tolist(), strict=True)
            found += [([*tokens, token], [*steps, value], place) for token, value in pairs]
        found = sorted(found, key=lambda one: -sum(one[1]))[: 2 * beam]
        going, step = [], []
        for rank, (tokens, steps, parent) in enumerate(found):
            score, fate = sum(steps), "pruned"
            if tokens[-1] == special.eos and rank < beam:
                score, fate = score / penalty(length), "ended"
                done.append(Hypothesis(tokens[:-1], steps, score))
            elif tokens[-1] != special.eos and len(going) < beam:
                fate = "kept"
                going.append((tokens, steps, rank))
            step.append(Branch(parent, tokens[-1], steps[-1], score, fate))
        trace.append(step)
        done = sorted(done, key=lambda one: -one.score)[:beam]
        best = sum(going[0][1]) / max(penalty(length + 1), penalty(max_lengths[0]))
        if len(done) == beam and done[-1].score >= best:
            return [done]
    done += [Hypothesis(tokens, steps, sum(steps) / penalty(length)) for tokens, steps, _ in going]
    return [sorted(done, key=lambda one: -one.score)[:beam]]


@pytest.fixture(autouse=True)
def _search(monkeypatch):
    if "trace" not in inspect.signature(beam_search).parameters:
        monkeypatch.setattr(capture, "beam_search", told_search)
