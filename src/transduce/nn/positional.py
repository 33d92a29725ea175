"""Positions: sinusoidal (section 3.5), learned (Table 3, row E), rotary, and sinusoidal in two dimensions."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BASE = 10_000.0
Layout = Literal["interleaved", "halves"]
Spacing = Literal["paper", "endpoint"]


def frequencies(d_model: int, spacing: Spacing = "paper", base: float = BASE) -> Tensor:
    """Return ``1 / base^(2i/d_model)`` for every pair of dimensions, (⌈d_model/2⌉,), via logarithms.

    With ``"endpoint"``, the last one is exactly ``1 / base``: ``1 / base^(2i/(d_model − 2))``.
    """
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    return torch.exp(even * (-math.log(base) / (d_model if spacing == "paper" else d_model - 2)))


def angles(start: int, end: int, d_model: int, spacing: Spacing = "paper", base: float = BASE) -> Tensor:
    """Return ``pos / base^(2i/d_model)``, (end − start, ⌈d_model/2⌉), in float64 to be exact far out."""
    positions = torch.arange(start, end, dtype=torch.float64, device="cpu")
    return torch.outer(positions, frequencies(d_model, spacing, base))


def sinusoids(
    length: int,
    d_model: int,
    *,
    start: int = 0,
    layout: Layout = "interleaved",
    spacing: Spacing = "paper",
) -> Tensor:
    """Return PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle): (length, d_model).

    With the layout ``"halves"``, all sines come before all cosines.
    """
    angle = angles(start, start + length, d_model, spacing)
    if layout == "halves":
        return torch.cat((angle.sin(), angle.cos()), dim=-1).float()
    # An odd d_model ends with a sine; its cosine is dropped.
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d_model].float()


class _Rows:
    """A table with one row per position, computed as far as it is needed.

    It is not a buffer of the module: it is not trained, its length differs between processes, and it must
    stay exact when the model's dtype changes.
    """

    def __init__(self, compute: Callable[[int], Tensor]) -> None:
        self._compute = compute  # length → (length, …)
        self._tables: dict[torch.device, Tensor] = {}

    def get(self, start: int, end: int, like: Tensor) -> Tensor:
        """Return rows ``start`` to ``end``, with the device and dtype of ``like``."""
        return self._reaching(end, like)[start:end].to(like.dtype)

    def at(self, positions: Tensor, like: Tensor) -> Tensor:
        """Return the rows at these positions, (rows,), with the device and dtype of ``like``."""
        end = int(positions.max()) + 1 if len(positions) else 0
        return self._reaching(end, like)[positions].to(like.dtype)

    def _reaching(self, end: int, like: Tensor) -> Tensor:
        table = self._tables.get(like.device)
        if table is None or end > len(table):
            # A tensor made in inference mode could not be used in training later.
            with torch.inference_mode(False):
                table = self._compute(max(2 * end, 128)).to(like.device)
            self._tables[like.device] = table
        return table


class SinusoidalPositions(nn.Module):
    """Add the paper's sinusoids, which exist for every position, however far.

    Other toolkits arrange them differently (``layout``), space the wavelengths differently (``spacing``), and
    count from another ``first`` position.
    """

    def __init__(
        self, d_model: int, *, layout: Layout = "interleaved", spacing: Spacing = "paper", first: int = 0
    ) -> None:
        super().__init__()
        self._rows = _Rows(partial(sinusoids, d_model=d_model, start=first, layout=layout, spacing=spacing))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Add positions to x, (batch, length, d_model), whose first position is ``start``."""
        return x + self._rows.get(start, start + x.size(1), like=x)

    def at(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add to x, (rows, 1, d_model), a position per row, (rows,)."""
        return x + self._rows.at(positions, like=x)[:, None]


def grid_sinusoids(height: int, width: int, d_model: int) -> Tensor:
    """Encode the row in one half of the dimensions and the column in the other: (height, width, d_model)."""
    half = d_model // 2
    rows = sinusoids(height, half)[:, None].expand(-1, width, -1)
    columns = sinusoids(width, d_model - half)[None].expand(height, -1, -1)
    return torch.cat((rows, columns), dim=-1)


class GridPositions(nn.Module):
    """Add two-dimensional sinusoids to the cells of a grid, given row by row.

    Tokens before the grid (a class token) have no position and get none.
    """

    def __init__(self, height: int, width: int, d_model: int) -> None:
        super().__init__()
        self.height, self.width = height, width
        self._rows = _Rows(partial(grid_sinusoids, width=width, d_model=d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Add positions to x, (batch, others + height·width, d_model)."""
        cells = self._rows.get(0, self.height, like=x).flatten(0, 1)
        return x + F.pad(cells, (0, 0, x.size(1) - len(cells), 0))


class LearnedPositions(nn.Module):
    """Add a trained vector per position, up to ``max_length`` positions."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Add positions to x, (batch, length, d_model), whose first position is ``start``."""
        end = start + x.size(1)
        if end > len(self.weight):
            raise ValueError(f"the sequence has {end} positions, but max_length is {len(self.weight)}")
        return x + self.weight[start:end]

    def at(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add to x, (rows, 1, d_model), a position per row, (rows,)."""
        if len(positions) and int(positions.max()) >= len(self.weight):
            raise ValueError(
                f"the sequence has {int(positions.max()) + 1} positions, but max_length is {len(self.weight)}"
            )
        return x + self.weight[positions][:, None]


class NoPositions(nn.Module):
    """Add nothing: positions enter the model in another way (rotary), or not at all."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Return x, (batch, length, d_model), unchanged."""
        return x

    def at(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x, (rows, 1, d_model), unchanged."""
        return x


def rotations(length: int, d_rotated: int, base: float = BASE) -> Tensor:
    """Return cosine and sine of every angle: (length, d_rotated/2, 2)."""
    angle = angles(0, length, d_rotated, base=base)
    return torch.stack((angle.cos(), angle.sin()), dim=-1).float()


class RotaryPositions(nn.Module):
    """Rotate every pair of dimensions of queries and keys by the position's angle (Su et al., 2021).

    The inner product of a query and a key then depends only on their distance. An odd last dimension is
    left unchanged. A larger ``base`` gives longer wavelengths, for longer texts.
    """

    def __init__(self, d_k: int, *, base: float = BASE) -> None:
        super().__init__()
        if d_k < 2:
            raise ValueError(f"rotary positions need d_k of at least 2, not {d_k}")
        self.d_rotated, self.base = d_k - d_k % 2, base
        self._rows = _Rows(partial(rotations, d_rotated=self.d_rotated, base=base))

    def forward(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """Rotate x, (batch, heads, length, d_k), whose first position is ``start``.

        Where rows differ, ``start`` is (batch,) and x has one position.
        """
        if isinstance(start, Tensor):
            table = self._rows.at(start, like=x)[:, None, None]  # (batch, heads, length, d_rotated/2, 2)
        else:
            table = self._rows.get(start, start + x.size(2), like=x)
        return self.rotate(x, table)

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """Rotate x, (batch, heads, length, d_k), by cosines and sines, (…, length, d_rotated/2, 2)."""
        cosine, sine = table.unbind(-1)
        even, odd = x[..., : self.d_rotated : 2], x[..., 1 : self.d_rotated : 2]
        rotated = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)
        return torch.cat((rotated, x[..., self.d_rotated :]), dim=-1)
