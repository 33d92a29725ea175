"""Another library that has loaded an exported model, for comparisons with ours. All tokens are ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor


class Pair(NamedTuple):
    """A source as the encoder reads it, and a target that ends with ``eos``."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class Search:
    """A beam search: until no better hypothesis can follow, scores divided by ``|Y|^α``, ``eos`` counted."""

    beam: int
    limit: int  # longest target, ``eos`` included
    length_penalty: float
    prefix: list[int]  # with which every target begins


class Peer(Protocol):
    """An exported model, loaded by the library that it was exported for."""

    @property
    def description(self) -> str:
        """Name and version of the library."""
        ...

    def score(self, pairs: Sequence[Pair]) -> list[Tensor]:
        """Return log-probabilities of the target's tokens, (target,), or of all tokens (target, tokens)."""
        ...

    def search(self, sources: Sequence[list[int]], search: Search) -> list[list[int]]:
        """Return the best target of each source, without ``eos``."""
        ...


@runtime_checkable
class TextPeer(Protocol):
    """A `Peer` that was loaded with a tokenizer of its own, which was exported, too."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each source, with all that stands around it."""
        ...

    def decode(self, target: list[int]) -> str:
        """Return the text of a target."""
        ...
