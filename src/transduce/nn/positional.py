"""Positions: the paper's sinusoids (section 3.5), learned ones (Table 3, row E), rotary ones."""

import math

import torch
from torch import Tensor, nn

BASE = 10_000.0


def inverse_wavelengths(d_model: int) -> Tensor:
    """``1 / 10000^(2i/d_model)`` for every pair of dimensions, computed in log space: (⌈d_model/2⌉,)."""
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    return torch.exp(even * (-math.log(BASE) / d_model))


def angles(start: int, end: int, d_model: int) -> Tensor:
    """``pos / 10000^(2i/d_model)``, in float64 for far positions: (end − start, ⌈d_model/2⌉)."""
    positions = torch.arange(start, end, dtype=torch.float64, device="cpu")
    return torch.outer(positions, inverse_wavelengths(d_model))


def sinusoids(length: int, d_model: int, *, start: int = 0) -> Tensor:
    """PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle): (length, d_model)."""
    angle = angles(start, start + length, d_model)
    # An odd d_model ends on a sine whose cosine has no place.
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d_model].float()


class SinusoidalPositions(nn.Module):
    """Add the paper's sinusoids; there is one for every position, however far."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.register_buffer("table", torch.empty(0, d_model), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model), whose first position is ``start`` → the same shape."""
        end = start + x.size(1)
        if end > len(self.table) or self.table.device != x.device:
            longer = max(end, 2 * len(self.table), 128)
            self.table = sinusoids(longer, self.d_model).to(x.device)
        return x + self.table[start:end].to(x.dtype)


class LearnedPositions(nn.Module):
    """Add a trained vector a position; there is none beyond ``max_length``."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model), whose first position is ``start`` → the same shape."""
        end = start + x.size(1)
        if end > len(self.weight):
            raise ValueError(f"{end} positions, but only {len(self.weight)} were learned (max_length)")
        return x + self.weight[start:end]


class NoPositions(nn.Module):
    """Add nothing: the order reaches the model another way (rotary), or not at all."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model) → x."""
        return x


class RotaryPositions(nn.Module):
    """Turn every pair of dimensions of queries and keys by the position's angle (Su et al., 2021).

    The inner product of a query and a key then depends on their distance alone. An odd last
    dimension is left as it is.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, d_k: int) -> None:
        super().__init__()
        if d_k < 2:
            raise ValueError(f"a rotation needs two dimensions, and d_k is {d_k}")
        self.d_rotated = d_k - d_k % 2
        self.register_buffer("cosines", torch.empty(0, self.d_rotated // 2), persistent=False)
        self.register_buffer("sines", torch.empty(0, self.d_rotated // 2), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, heads, length, d_k), whose first position is ``start`` → the same shape."""
        end = start + x.size(2)
        if end > len(self.cosines) or self.cosines.device != x.device:
            angle = angles(0, max(end, 2 * len(self.cosines), 128), self.d_rotated)
            self.cosines, self.sines = angle.cos().float().to(x.device), angle.sin().float().to(x.device)
        cosine, sine = self.cosines[start:end].to(x.dtype), self.sines[start:end].to(x.dtype)
        even, odd = x[..., : self.d_rotated : 2], x[..., 1 : self.d_rotated : 2]
        turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)
        return torch.cat((turned, x[..., self.d_rotated :]), dim=-1)
