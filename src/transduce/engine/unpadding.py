"""Batches without padding: the tokens of all sentences in one row."""

from typing import NamedTuple

from torch import Tensor


class Unpadded(NamedTuple):
    """The places of the real tokens in a padded batch."""

    places: Tensor  # (tokens,), indices into batch × length
    batch: int
    length: int

    @classmethod
    def of(cls, key_mask: Tensor) -> "Unpadded":
        """Find the real tokens with a key mask, (batch, length)."""
        return cls(key_mask.flatten().nonzero().squeeze(1), len(key_mask), key_mask.size(1))

    def take(self, x: Tensor) -> Tensor:
        """Remove the padding: (batch, length, width) → (1, tokens, width)."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def put_back(self, x: Tensor) -> Tensor:
        """Restore the padding as zeros: (1, tokens, width) → (batch, length, width)."""
        padded = x.new_zeros(self.batch, self.length, x.size(-1))
        padded.flatten(0, 1).index_copy_(0, self.places, x[0])  # flatten gives a view
        return padded
