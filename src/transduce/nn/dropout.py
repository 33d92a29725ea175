"""Dropout (section 5.4): reproducible from a generator that can be saved, and cheap on CPUs."""

import torch
from torch import Tensor, nn

_LEVELS = 1 << 16


class Random(nn.Module):
    """A module that takes random numbers from ``generator``, or from torch's default one if ``None``."""

    generator: torch.Generator | None = None


class Dropout(Random):
    """Zero each element with probability p and scale the rest, so that the mean is unchanged.

    ``torch.nn.Dropout`` on the CPU samples one Bernoulli variable per element. Here one random 64-bit
    integer serves four elements, 16 bits each: p is rounded to a multiple of 1/65536, and the scale is
    that of the rounded p.

    ``generator`` must be on the device of the input; `use_generator` sets it for a whole model.
    """

    def __init__(self, p: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout probability must be in [0, 1), not {p}")
        self.p = p
        self.generator = generator
        self._dropped_levels = min(round(p * _LEVELS), _LEVELS - 1)
        self._scale = _LEVELS / (_LEVELS - self._dropped_levels)

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x, (…), in training; return x unchanged in evaluation."""
        if not self.training or self._dropped_levels == 0:
            return x
        return x * self._keep_mask(x).mul_(self._scale)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute ``x + forward(y)`` in one pass over both."""
        if not self.training or self._dropped_levels == 0:
            return x + y
        return torch.addcmul(x, y.to(x.dtype), self._keep_mask(x), value=self._scale)

    def _keep_mask(self, x: Tensor) -> Tensor:
        """Return 0 for dropped and 1 for kept elements, with the shape and dtype of x."""
        count = x.numel()
        draws = torch.empty((count + 3) // 4, dtype=torch.int64, device=x.device)
        # From the lowest value up to and including the highest: all 64 bits are random.
        draws.random_(torch.iinfo(torch.int64).min, None, generator=self.generator)
        bits = draws.view(torch.int16)[:count].view(x.shape)
        return bits.ge_(self._dropped_levels - _LEVELS // 2).to(x.dtype)

    def extra_repr(self) -> str:
        """Return the arguments that ``print(model)`` shows."""
        return f"p={self.p}"


def use_generator(module: nn.Module, generator: torch.Generator | None) -> None:
    """Make every random part of ``module`` use ``generator``."""
    for child in module.modules():
        if isinstance(child, Random):
            child.generator = generator
