"""Build a model from its configuration."""

from collections.abc import Callable
from typing import Any, TypeAlias, overload

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

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
from transduce.machine import physical_memory
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
    _require_memory(config, vocabulary)
    if seed is None:
        return _assemble(config, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU generator only: fork_rng restores no other
        return _assemble(config, vocabulary)


def build_without_weights(config: ModelConfig, vocabulary: Vocabulary | None) -> Model:
    """Build a model on the meta device: its parameters have shapes but no values."""
    with torch.device("meta"), _NoInitialization():
        return _assemble(config, vocabulary)


class _NoInitialization(TorchFunctionMode):
    """Skip random initialization, for which torch would import its compiler: that takes over a second."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Return the tensor unchanged from ``nn.init.normal_``; call all other functions."""
        kwargs = kwargs or {}
        return kwargs["tensor"] if function is nn.init.normal_ else function(*args, **kwargs)


def _require_memory(config: ModelConfig, vocabulary: Vocabulary | None) -> None:
    """Refuse a model whose weights alone do not fit into the machine's memory, before it is used up."""
    parameters = sum(p.numel() for p in build_without_weights(config, vocabulary).parameters())
    needed, memory = 4 * parameters, physical_memory()
    if memory is not None and needed > memory:
        raise ConfigError(
            f"the model has {parameters:,} parameters, {needed / 1e9:,.0f} GB, but this machine has "
            f"{memory / 1e9:,.0f} GB of memory",
            "choose a smaller model",
        )


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
