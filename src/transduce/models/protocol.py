"""How the rest of the house sees a model: to save it, to train it, to decode with it."""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from transduce.config import ModelConfig, Vocabulary
from transduce.engine.packed_search import Said, Search
from transduce.nn.embedding import Embedding


class Model(nn.Module):
    """A model of any family: enough to build it anew, save it and train it on some objective."""

    config: ModelConfig
    vocabulary: Vocabulary | None  # of the text that it reads or writes, if it does

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.parameters()).device


Precision = Literal["float32", "bfloat16", "int8", "auto"]  # in which a model is used; auto: the fastest here


@dataclass
class AttentionWeights:
    """Every head of every layer; a list holds a (batch, heads, query, key) a layer."""

    encoder: list[Tensor] = field(default_factory=list)
    decoder: list[Tensor] = field(default_factory=list)
    encoder_decoder: list[Tensor] = field(default_factory=list)


class State(Protocol):
    """A model in the middle of a batch of sentences; the caller holds it."""

    @property
    def length(self) -> int:
        """How many target tokens have been read."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep these targets, in this order; a target may be taken several times.

        rows (targets,), or (sources, width) where those of a row share their source, as beams do.
        """
        ...


MemoryT = TypeVar("MemoryT", bound=Any)
StateT = TypeVar("StateT", bound=State)


class SequenceModel(Protocol[MemoryT, StateT]):
    """encode a source, start a target, step from token to token."""

    vocabulary: Vocabulary

    @property
    def max_length(self) -> int | None:
        """The longest source or target it can read; ``None`` if there is no such limit."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    def encode(self, source: Tensor) -> MemoryT:
        """Read the source: tokens (batch, source)."""
        ...

    def start(self, memory: MemoryT, capacity: int = ...) -> StateT:
        """Before the first target token; room is set aside for ``capacity`` tokens, and grows if need be."""
        ...

    def step(self, tokens: Tensor, state: StateT, record: list[Tensor] | None = None) -> Tensor:
        """Read one token a target, (targets,); gives logits of the next, (targets, target vocabulary).

        ``record`` receives the attention to the source, (targets, heads, source) a layer.

        No token may be padding: a sentence that has ended leaves the batch (``state.select``), or its logits
        are ignored from there on.
        """
        ...

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """The weights while reading this source and target, (batch, source) and (batch, target)."""
        ...


@runtime_checkable
class SearchingModel(Protocol):
    """A `SequenceModel` that has a faster way than step after step to look for targets."""

    def search(self, state: Any, search: Search) -> list[list[Said]] | None:
        """What is looked for, best first, from a new state, which is used up; or nothing, if it cannot.

        Raises ArithmeticError if the logits are no numbers.
        """
        ...


class SequenceToSequenceModel(Protocol):
    """What learning to turn a source into a target takes; the objective itself projects to the vocabulary."""

    vocabulary: Vocabulary
    training: bool

    @property
    def max_length(self) -> int | None:
        """The longest source or target it can read; ``None`` if there is no such limit."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def output(self) -> Embedding:
        """The pre-softmax projection."""
        ...

    def encode(self, source: Tensor) -> Any:
        """Read the source: tokens (batch, source)."""
        ...

    def decode(self, target: Tensor, memory: Any) -> Tensor:
        """Read the whole target, (batch, target) → (batch, target, d_model), ready for the output layer."""
        ...
