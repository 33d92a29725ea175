"""Positions: the paper's sinusoids (section 3.5), learned (Table 3, row E), rotary, of a grid."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BASE = 10_000.0


def frequencies(d_model: int) -> Tensor:
    """``1 / 10000^(2i/d_model)`` for every pair of dimensions, computed in log space: (⌈d_model/2⌉,)."""
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    return torch.exp(even * (-math.log(BASE) / d_model))


def angles(start: int, end: int, d_model: int) -> Tensor:
    """``pos / 10000^(2i/d_model)``, in float64 for far positions: (end − start, ⌈d_model/2⌉)."""
    positions = torch.arange(start, end, dtype=torch.float64, device="cpu")
    return torch.outer(positions, frequencies(d_model))


def sinusoids(length: int, d_model: int, *, start: int = 0) -> Tensor:
    """PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle): (length, d_model)."""
    angle = angles(start, start + length, d_model)
    # An odd d_model ends on a sine whose cosine has no place.
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d_model].float()


class _Rows:
    """A table with a row a position, computed as far as it is needed.

    Not a buffer of the module: it is no state, differs between processes that saw other lengths, and must
    stay exact when the model changes its type.
    """

    def __init__(self, compute: Callable[[int], Tensor]) -> None:
        self._compute = compute  # length → (length, …)
        self._tables: dict[torch.device, Tensor] = {}

    def get(self, start: int, end: int, like: Tensor) -> Tensor:
        """Rows ``start`` to ``end``, with the device and type of ``like``."""
        table = self._tables.get(like.device)
        if table is None or end > len(table):
            # What is made in inference mode could not be used in training after.
            with torch.inference_mode(False):
                table = self._compute(max(2 * end, 128)).to(like.device)
            self._tables[like.device] = table
        return table[start:end].to(like.dtype)


class SinusoidalPositions(nn.Module):
    """Add the paper's sinusoids; there is one for every position, however far."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self._rows = _Rows(partial(sinusoids, d_model=d_model))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model), whose first position is ``start`` → the same shape."""
        return x + self._rows.get(start, start + x.size(1), like=x)


def grid_sinusoids(height: int, width: int, d_model: int) -> Tensor:
    """One half of the dimensions tells the row, the other the column: (height, width, d_model)."""
    half = d_model // 2
    rows = sinusoids(height, half)[:, None].expand(-1, width, -1)
    columns = sinusoids(width, d_model - half)[None].expand(height, -1, -1)
    return torch.cat((rows, columns), dim=-1)


class GridPositions(nn.Module):
    """Add sinusoids in two dimensions to the cells of a grid, given row by row.

    What stands before the grid (a class token) has no place in it, and gets none.
    """

    def __init__(self, height: int, width: int, d_model: int) -> None:
        super().__init__()
        self.height, self.width = height, width
        self._rows = _Rows(partial(grid_sinusoids, width=width, d_model=d_model))

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, others + height·width, d_model) → the same shape."""
        cells = self._rows.get(0, self.height, like=x).flatten(0, 1)
        return x + F.pad(cells, (0, 0, x.size(1) - len(cells), 0))


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

    def at(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (rows, 1, d_model), each row at a position of its own, (rows,) → the same shape."""
        if len(positions) and int(positions.max()) >= len(self.weight):
            raise ValueError(f"position {int(positions.max())}, but only {len(self.weight)} were learned")
        return x + self.weight[positions][:, None]


class NoPositions(nn.Module):
    """Add nothing: the order reaches the model another way (rotary), or not at all."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, length, d_model) → x."""
        return x


def turns(length: int, d_rotated: int) -> Tensor:
    """Cosine and sine of every angle: (length, d_rotated/2, 2)."""
    angle = angles(0, length, d_rotated)
    return torch.stack((angle.cos(), angle.sin()), dim=-1).float()


class RotaryPositions(nn.Module):
    """Turn every pair of dimensions of queries and keys by the position's angle (Su et al., 2021).

    The inner product of a query and a key then depends on their distance alone. An odd last
    dimension is left as it is.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        if d_k < 2:
            raise ValueError(f"a rotation needs two dimensions, and d_k is {d_k}")
        self.d_rotated = d_k - d_k % 2
        self._rows = _Rows(partial(turns, d_rotated=self.d_rotated))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (batch, heads, length, d_k), whose first position is ``start`` → the same shape."""
        cosine, sine = self._rows.get(start, start + x.size(2), like=x).unbind(-1)
        even, odd = x[..., : self.d_rotated : 2], x[..., 1 : self.d_rotated : 2]
        turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)
        return torch.cat((turned, x[..., self.d_rotated :]), dim=-1)
