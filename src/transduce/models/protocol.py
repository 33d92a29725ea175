"""What the other rooms need of a model: to save it, to train it, to decode with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from transduce.config import ModelConfig, Vocabulary
from transduce.nn.embedding import Embedding

Precision = Literal["float32", "bfloat16", "int8", "auto"]  # for inference; auto: the fastest on this machine


class Model(nn.Module):
    """A model of any family: enough to rebuild it, save it and train it on some objective."""

    config: ModelConfig
    vocabulary: Vocabulary | None  # of the text that the model reads or writes; None for images

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return next(self.parameters()).device


@dataclass
class AttentionWeights:
    """The attention weights of every layer: lists of (batch, heads, query, key), one per layer."""

    encoder: list[Tensor] = field(default_factory=list)
    decoder: list[Tensor] = field(default_factory=list)
    encoder_decoder: list[Tensor] = field(default_factory=list)


class State(Protocol):
    """The state of decoding between two steps, for a batch of sentences; the caller holds it."""

    @property
    def length(self) -> int:
        """The number of target tokens read so far."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order; one may be taken several times.

        ``rows`` is (targets,), or (sources, width) where those of one row share their source, as in a beam.
        """
        ...


MemoryT = TypeVar("MemoryT", bound=Any)
StateT = TypeVar("StateT", bound=State)


class SequenceModel(Protocol[MemoryT, StateT]):
    """The decoding protocol: `encode` a source, `start` a target, `step` from token to token."""

    vocabulary: Vocabulary

    @property
    def max_length(self) -> int | None:
        """The longest source or target that the model can read, in tokens; ``None`` if unlimited."""
        ...

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        ...

    def encode(self, source: Tensor) -> MemoryT:
        """Encode source tokens, (batch, source), or with factors (batch, source, 1 + factors)."""
        ...

    def start(self, memory: MemoryT, capacity: int = ...) -> StateT:
        """Return the state before the first target token, with memory reserved for ``capacity`` tokens."""
        ...

    def step(self, tokens: Tensor, state: StateT, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,); return logits of the next, (targets, target vocabulary).

        ``record`` receives each layer's attention to the source, (targets, heads, source).

        No token may be padding: a finished sentence leaves the batch (``state.select``), or its logits are
        ignored from then on.
        """
        ...

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the attention weights for a source, (batch, source), and a target, (batch, target)."""
        ...


@dataclass(frozen=True)
class SearchRequest:
    """A beam search over a batch of sources: find the ``count`` best targets of each."""

    max_lengths: Sequence[int]  # of each source's targets, in tokens, ``eos`` included
    penalties: Sequence[float]  # divisors of summed log-probabilities, for lengths 0, 1, … max(max_lengths)
    beam: int
    count: int
    exact: bool  # stop when nothing better can follow; otherwise, when ``beam`` hypotheses have ended
    bos: int
    eos: int
    forbidden: Sequence[int]  # tokens that never appear in a target
    # Tokens that the decoder reads after ``bos``, before the search; no part of the results or their lengths
    prefix: Sequence[int] = ()
    # For each source, the only tokens that may appear, in ascending order
    shortlists: Sequence[Tensor] | None = None


@dataclass(frozen=True)
class SearchResult:
    """A finished hypothesis of a search."""

    tokens: list[int]  # ends with ``eos``, unless the target was cut off at its maximum length
    log_probabilities: list[float]  # of each token
    score: float  # their sum divided by the penalty


@runtime_checkable
class SearchingModel(Protocol):
    """A `SequenceModel` that can run a whole beam search faster than step by step."""

    def search(self, source: Tensor, request: SearchRequest) -> list[list[SearchResult]] | None:
        """Return the results of each source, best first, or ``None`` if the model cannot run this search.

        ``source`` is what `encode` takes. Raises `ArithmeticError` if the logits are NaN.
        """
        ...


class JoinableSearch(Protocol):
    """A running beam search that sentences join and leave, each with its own position and limit."""

    def __len__(self) -> int:
        """Return the number of sentences that are waiting or running."""
        ...

    def add(self, source: Tensor, max_length: int, shortlist: Tensor | None = None) -> int:
        """Queue a source, (tokens,) or (tokens, 1 + factors), and return a ticket for its results."""
        ...

    def advance(self, steps: int | None = None) -> dict[int, list[SearchResult]]:
        """Compute until a sentence is finished, or ``steps`` steps; return the results by ticket."""
        ...

    def cancel(self, ticket: int) -> None:
        """Drop a sentence whose results are no longer wanted."""
        ...


@runtime_checkable
class JoinableModel(Protocol):
    """A `SequenceModel` whose searches can be joined while they run."""

    def running_search(self, request: SearchRequest, *, slots: int) -> JoinableSearch:
        """Return a search for at most ``slots`` sentences at a time; the request's limits are not used.

        Raises `ValueError` if there are too few tokens for the beam.
        """
        ...


class SequenceToSequenceModel(Protocol):
    """A model that can be trained to map a source to a target; the loss applies the output projection."""

    vocabulary: Vocabulary
    training: bool

    @property
    def max_length(self) -> int | None:
        """The longest source or target that the model can read, in tokens; ``None`` if unlimited."""
        ...

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        ...

    @property
    def output(self) -> Embedding:
        """The pre-softmax projection."""
        ...

    def encode(self, source: Tensor) -> Any:
        """Encode source tokens, (batch, source), or with factors (batch, source, 1 + factors)."""
        ...

    def decode(self, target: Tensor, memory: Any) -> Tensor:
        """Decode a whole target, (batch, target) → (batch, target, d_model), ready for the output layer."""
        ...
