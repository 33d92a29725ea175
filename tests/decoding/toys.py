"""A model small enough to try everything."""

import itertools

import torch

from transduce.config import Vocabulary


class Toy:
    """A model whose next token depends on the source and on all that was said, at random."""

    def __init__(self, size, seed, sharpness=2.0):
        self.vocabulary = Vocabulary(source=size, target=size)
        self.size, self.seed, self.sharpness = size, seed, sharpness
        self.max_length = None

    def encode(self, source):
        return source

    def start(self, memory, capacity=8):
        return ToyState(memory, [() for _ in memory])

    def step(self, tokens, state, record=None):
        state.said = [(*said, int(token)) for said, token in zip(state.said, tokens, strict=True)]
        if record is not None:
            length = state.source.size(1)
            record.append(torch.stack([self.attention(said, length) for said in state.said])[:, None])
        return torch.stack(
            [
                self.logits(tuple(source.tolist()), said)
                for source, said in zip(state.source, state.said, strict=True)
            ]
        )

    def logits(self, source, said):
        seed = hash((self.seed, source, said)) % 2**31
        return self.sharpness * torch.randn(self.size, generator=torch.Generator().manual_seed(seed))

    def attention(self, said, length):
        """(source,), positive, of sum 1."""
        seed = hash((self.seed, said)) % 2**31
        return (2 * torch.randn(length, generator=torch.Generator().manual_seed(seed))).softmax(-1)


class ToyState:
    def __init__(self, source, said):
        self.source, self.said = source, said

    @property
    def length(self):
        return len(self.said[0])

    def select(self, rows):
        rows = rows.flatten()
        self.source, self.said = self.source[rows], [self.said[row] for row in rows.tolist()]


def exhaustive(model, source, max_length, penalty):
    """Every target there is, best first."""
    source, speakable, found = tuple(source.tolist()), range(3, model.size), []
    for length in range(max_length + 1):
        for said in itertools.product(speakable, repeat=length):
            ended = (*said, 2) if length < max_length else said
            history, total = (1,), 0.0
            for token in ended:
                total += model.logits(source, history).log_softmax(-1)[token].item()
                history = (*history, token)
            found.append((total / penalty(len(ended)), list(said)))
    return sorted(found, reverse=True)
