"""Without padding: the tokens of a batch one after the other, for all that looks at one token at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

WORTH = 0.9  # share of real tokens below which the others cost more than the way there and back


class Unpadded(NamedTuple):
    """Where the real tokens of a padded batch are."""

    places: Tensor  # (tokens,), among all of batch × length
    batch: int
    length: int

    @classmethod
    def of(cls, mask: Tensor) -> "Unpadded | None":
        """By a mask of keys, (batch, 1, 1, length), if it hides enough.

        Only where nothing is learned or compiled, and on CPUs: a GPU would have to wait for the count.
        """
        if mask.dim() != 4 or mask.size(0) < 2 or mask.shape[1:3] != (1, 1):
            return None
        if mask.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        places = mask.flatten().nonzero().squeeze(1)
        return cls(places, len(mask), mask.size(3)) if len(places) < WORTH * mask.numel() else None

    def take(self, x: Tensor) -> Tensor:
        """(batch, length, width) → (1, tokens, width)."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def put_back(self, x: Tensor) -> Tensor:
        """(1, tokens, width) → (batch, length, width), with zeros for padding."""
        padded = x.new_zeros(self.batch * self.length, x.size(-1))
        return padded.index_copy_(0, self.places, x[0]).view(self.batch, self.length, -1)
