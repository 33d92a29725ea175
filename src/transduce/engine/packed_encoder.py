"""The encoder in one call of C, without padding: `encode` in `kernels.c`."""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.engine.kernels import required_library
from transduce.engine.packed_stack import PackedStack
from transduce.nn.encoder import Encoder


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


MAX_SOURCE_LENGTH = 64  # tokens; for longer sources torch's attention is faster


class PackedEncoder:
    """Encodes sources of different lengths without padding. Make one with `of`."""

    def __init__(self, stack: PackedStack) -> None:
        self._stack = stack

    @classmethod
    def of(cls, encoder: Encoder) -> "PackedEncoder | None":
        """Pack an encoder, or return ``None`` if the kernel cannot compute it."""
        stack = PackedStack.of(encoder.layers, encoder.final_norm)
        return None if stack is None else cls(stack)

    def __call__(self, x: Tensor, key_mask: Tensor) -> Tensor:
        """Encode x, (batch, source, d_model), with a key mask (batch, source); the output is 0 at padding."""
        tokens = Unpadded.of(key_mask)
        begins = torch.zeros(len(key_mask) + 1, dtype=torch.long)
        torch.cumsum(key_mask.sum(dim=1), 0, out=begins[1:])
        rows = tokens.take(x).float().contiguous()
        memory = torch.empty_like(rows)
        done = required_library().encode(
            *(ctypes.byref(self._stack.struct), begins.data_ptr(), len(key_mask)),
            *(rows.data_ptr(), memory.data_ptr(), torch.get_num_threads()),
        )
        if not done:
            raise MemoryError(f"cannot allocate memory for {rows.size(1):,} tokens")
        return tokens.put_back(memory).to(x.dtype)
