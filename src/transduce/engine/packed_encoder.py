"""An encoder in one call of C, once its linear maps are in 8 bits: `encode` in `kernels.c`."""

import ctypes

import torch
from torch import Tensor

from transduce.engine.kernels import there
from transduce.engine.packed_stack import PackedStack
from transduce.engine.unpadding import Unpadded
from transduce.nn.encoder import Encoder

LONGEST = 64  # tokens of a source; at twice as many, torch is faster: its attention is


class PackedEncoder:
    """Reads sources of different lengths without padding, by layers that must stay as they are; see `of`."""

    def __init__(self, stack: PackedStack) -> None:
        self._stack = stack

    @classmethod
    def of(cls, encoder: Encoder) -> "PackedEncoder | None":
        """If the layers are such as the kernel knows."""
        stack = PackedStack.of(encoder.layers, encoder.final_norm)
        return None if stack is None else cls(stack)

    def fits(self, mask: Tensor) -> bool:
        """Whether sources, with a mask (batch, 1, 1, source), are short enough for it."""
        return mask.size(3) <= LONGEST

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, source, d_model), and a mask (batch, 1, 1, source) → the memory, zeros for padding."""
        tokens = Unpadded.of(mask)
        begins = torch.zeros(len(mask) + 1, dtype=torch.long)
        torch.cumsum(mask.sum(dim=(1, 2, 3)), 0, out=begins[1:])
        rows = tokens.take(x).float().contiguous()
        memory = torch.empty_like(rows)
        done = there().encode(
            *(ctypes.byref(self._stack.stack), begins.data_ptr(), len(mask)),
            *(rows.data_ptr(), memory.data_ptr(), torch.get_num_threads()),
        )
        if not done:
            raise MemoryError(f"no room for {rows.size(1):,} tokens")
        return tokens.put_back(memory).to(x.dtype)
