"""The encoder in one call of C: `encode` in `kernels.c`."""

import ctypes

import torch
from torch import Tensor

from transduce.engine.kernels import required_library
from transduce.engine.packed_stack import PackedStack
from transduce.engine.unpadding import Unpadded
from transduce.nn.encoder import Encoder

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
