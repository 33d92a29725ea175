"""From a configuration to a model."""

import torch

from transduce.config import TransformerConfig, Vocabulary
from transduce.models.transformer import Transformer


def build(config: TransformerConfig, vocabulary: Vocabulary, *, seed: int | None = None) -> Transformer:
    """A new model of the configured family. With a seed, the same weights every time."""
    if seed is None:
        return Transformer(config, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: other devices are not restored
        return Transformer(config, vocabulary)
