"""A model small enough for exhaustive search."""

import itertools

import torch

from transduce.config import Vocabulary


class Toy:
    """A model whose logits are random, but determined by the source and the whole target so far."""

    def __init__(self, size, seed, sharpness=2.0):
        self.vocabulary = Vocabulary(source=size, target=size)
        self.size, self.seed, self.sharpness = size, seed, sharpness
        self.max_length = None

    def encode(self, source):
        return source

    def start(self, memory, capacity=8):
        return ToyState(memory, [() for _ in memory])

    def step(self, tokens, state, record=None):
        state.target = [(*target, int(token)) for target, token in zip(state.target, tokens, strict=True)]
        if record is not None:
            length = state.source.size(1)
            record.append(torch.stack([self.attention(target, length) for target in state.target])[:, None])
        return torch.stack(
            [
                self.logits(tuple(source.tolist()), target)
                for source, target in zip(state.source, state.target, strict=True)
            ]
        )

    def logits(self, source, target):
        seed = hash((self.seed, source, target)) % 2**31
        return self.sharpness * torch.randn(self.size, generator=torch.Generator().manual_seed(seed))

    def attention(self, target, length):
        """Return positive weights (source,) with a sum of 1."""
        seed = hash((self.seed, target)) % 2**31
        return (2 * torch.randn(length, generator=torch.Generator().manual_seed(seed))).softmax(-1)


class ToyState:
    def __init__(self, source, target):
        self.source, self.target = source, target

    @property
    def length(self):
        return len(self.target[0])

    def select(self, rows):
        rows = rows.flatten()
        self.source, self.target = self.source[rows], [self.target[row] for row in rows.tolist()]


def exhaustive(model, source, max_length, penalty):
    """Return every possible target, best first."""
    source, vocabulary, results = tuple(source.tolist()), range(3, model.size), []
    for length in range(max_length + 1):
        for target in itertools.product(vocabulary, repeat=length):
            ended = (*target, 2) if length < max_length else target
            history, total = (1,), 0.0
            for token in ended:
                total += model.logits(source, history).log_softmax(-1)[token].item()
                history = (*history, token)
            results.append((total / penalty(len(ended)), list(target)))
    return sorted(results, reverse=True)
