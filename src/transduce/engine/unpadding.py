"""Without padding: the tokens of a batch one after the other, for all that looks at one token at a time."""

from typing import NamedTuple

from torch import Tensor


class Unpadded(NamedTuple):
    """Where the real tokens of a padded batch are."""

    places: Tensor  # (tokens,), among all of batch × length
    batch: int
    length: int

    @classmethod
    def of(cls, mask: Tensor) -> "Unpadded":
        """By a mask of keys, (batch, 1, 1, length)."""
        return cls(mask.flatten().nonzero().squeeze(1), len(mask), mask.size(3))

    @property
    def share(self) -> float:
        """How much of the batch is no padding."""
        return len(self.places) / max(1, self.batch * self.length)

    def take(self, x: Tensor) -> Tensor:
        """(batch, length, width) → (1, tokens, width)."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def put_back(self, x: Tensor) -> Tensor:
        """(1, tokens, width) → (batch, length, width), with zeros for padding."""
        padded = x.new_zeros(self.batch, self.length, x.size(-1))
        padded.flatten(0, 1).index_copy_(0, self.places, x[0])  # a view
        return padded
