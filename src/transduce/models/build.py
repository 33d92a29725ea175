"""Build a model from its configuration."""

from typing import TypeAlias, overload

import torch

from transduce.config import (
    BERTConfig,
    GPTConfig,
    ModelConfig,
    RNNConfig,
    TransformerConfig,
    ViTConfig,
    Vocabulary,
)
from transduce.errors import ConfigError
from transduce.models.bert import BERT
from transduce.models.gpt import GPT
from transduce.models.protocol import Model
from transduce.models.rnn import RNN
from transduce.models.transformer import Transformer
from transduce.models.vit import ViT

TextToText: TypeAlias = Transformer | RNN  # the families that translate


@overload
def build(
    config: TransformerConfig, vocabulary: Vocabulary | None, *, seed: int | None = None
) -> Transformer: ...
@overload
def build(config: RNNConfig, vocabulary: Vocabulary | None, *, seed: int | None = None) -> RNN: ...
@overload
def build(config: GPTConfig, vocabulary: Vocabulary | None, *, seed: int | None = None) -> GPT: ...
@overload
def build(config: BERTConfig, vocabulary: Vocabulary | None, *, seed: int | None = None) -> BERT: ...
@overload
def build(config: ViTConfig, vocabulary: None = None, *, seed: int | None = None) -> ViT: ...
@overload
def build(config: ModelConfig, vocabulary: Vocabulary | None, *, seed: int | None = None) -> Model: ...
def build(config: ModelConfig, vocabulary: Vocabulary | None = None, *, seed: int | None = None) -> Model:
    """Build a new model of the configured family; the same seed gives the same weights."""
    if seed is None:
        return _assemble(config, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU generator only: fork_rng restores no other
        return _assemble(config, vocabulary)


def _assemble(config: ModelConfig, vocabulary: Vocabulary | None) -> Model:
    if isinstance(config, ViTConfig):
        return ViT(config)
    if vocabulary is None:
        raise ConfigError(
            f"a model of family {config.family!r} needs a vocabulary", "pass a Vocabulary to build()"
        )
    if isinstance(config, GPTConfig):
        return GPT(config, vocabulary)
    if vocabulary.pad == vocabulary.eos:
        raise ConfigError(
            f"the vocabulary has no separate padding token, which family {config.family!r} needs",
            "use another tokenizer",
        )
    if isinstance(config, BERTConfig):
        return BERT(config, vocabulary)
    if isinstance(config, RNNConfig):
        return RNN(config, vocabulary)
    return Transformer(config, vocabulary)
