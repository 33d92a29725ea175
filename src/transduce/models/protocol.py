"""The one interface through which decoding sees a model."""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from transduce.config import Vocabulary

Precision = Literal["float32", "bf16", "int8", "auto"]  # in which a model is used; auto: the fastest here


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
