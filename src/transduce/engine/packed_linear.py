"""Linear layers as the engine computes them: weights in the order in which an instruction set reads them."""

import ctypes
from copy import copy
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.engine.native import Engine, check, required_library
from transduce.engine.structures import LinearStruct

Kind = Literal["float32", "int8", "bfloat16"]
_KINDS: dict[Kind, int] = {"float32": 0, "int8": 1, "bfloat16": 2}
MULTIPLE = 16  # of which every width must be a multiple
WIDEST_PANEL = 64


def padded(width: int) -> int:
    """Return the width of the rows that the engine writes results to."""
    return -(-width // WIDEST_PANEL) * WIDEST_PANEL


class PackedLinear:
    """``x W + b``. In int8, W has one scale per output and x one per row; x is rounded on the fly."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, kind: Kind, engine: Engine, *, missing_bias: float = 0.0
    ) -> None:
        """Pack weight (out, in) and bias (out,); outputs that fill up the last panel get ``missing_bias``."""
        self.d_out, self.d_in = weight.shape
        self.kind: Kind = kind
        self.engine = engine
        missing = -self.d_out % engine.panel
        weight = weight.detach().float()
        bias = weight.new_zeros(self.d_out) if bias is None else bias.detach().float()
        bias = F.pad(bias, (0, padded(self.d_out) - self.d_out), value=missing_bias).contiguous()
        panels = -1, engine.panel
        if kind == "int8":
            scales = weight.abs().amax(dim=1).clamp(min=1e-12) / engine.weight_limit
            steps = F.pad((weight / scales[:, None]).round(), (0, 0, 0, missing)).to(torch.int8)
            # The four inputs of one instruction are adjacent.
            packed = steps.view(*panels, self.d_in // 4, 4).transpose(1, 2).contiguous()
            offsets = -engine.input_offset * steps.sum(dim=1, dtype=torch.int32)
            self._tensors = packed, F.pad(scales, (0, missing)).contiguous(), offsets, bias
        elif kind == "bfloat16":
            rounded = F.pad(weight, (0, 0, 0, missing)).bfloat16()
            packed = rounded.view(*panels, self.d_in // 2, 2).transpose(1, 2).contiguous()
            self._tensors = packed, bias[:0], bias[:0], bias
        else:
            packed = F.pad(weight, (0, 0, 0, missing)).view(*panels, self.d_in).transpose(1, 2).contiguous()
            self._tensors = packed, bias[:0], bias[:0], bias
        self.struct = self._make_struct()

    def _make_struct(self) -> LinearStruct:
        pointers = (part.data_ptr() for part in self._tensors)  # the tensors stay alive with this object
        return LinearStruct(*pointers, self.d_in, self.d_out, _KINDS[self.kind], 0)

    def with_bias(self, bias: Tensor) -> "PackedLinear":
        """Return the same matrix with a bias (out,), in place of none."""
        copy_ = copy(self)
        bias = F.pad(bias.detach().float(), (0, padded(self.d_out) - self.d_out)).contiguous()
        copy_._tensors = (*self._tensors[:3], bias)
        copy_.struct = copy_._make_struct()
        return copy_

    def __getstate__(self) -> dict[str, Any]:
        """Leave the pointers out: a copy has its own memory."""
        return {name: value for name, value in self.__dict__.items() if name != "struct"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.struct = self._make_struct()

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out), both float32."""
        if x.size(-1) != self.d_in:
            raise ValueError(f"the linear layer takes inputs of width {self.d_in}, not {x.size(-1)}")
        x = x.float().contiguous()
        rows = x.shape[:-1].numel()
        y = x.new_empty(*x.shape[:-1], padded(self.d_out))
        error = required_library().transduce_linear(
            self.engine.kernels,
            ctypes.addressof(self.struct),
            *(x.data_ptr(), y.data_ptr(), rows, torch.get_num_threads()),
        )
        check(error, f"a linear layer of {rows:,} rows")
        return y[..., : self.d_out]


def can_pack(weight: Tensor) -> bool:
    """Return whether the engine can compute with this weight, (out, in)."""
    is_known = weight.dtype in (torch.float32, torch.bfloat16)
    return is_known and weight.device.type == "cpu" and weight.size(1) % MULTIPLE == 0


def kind_of(weight: Tensor) -> Kind:
    """Return the precision of a weight that `can_pack` accepts."""
    return "bfloat16" if weight.dtype == torch.bfloat16 else "float32"
