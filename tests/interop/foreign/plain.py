"""Plain torch functions of which the computations of foreign toolkits are put together.

They take tensors from a state dict by name and know nothing of Transduce, so that they can serve as its
oracle. Masks are true where attention is allowed. The models of all toolkits here are 24 wide and have 3
heads, so that no scale is a power of two: with one, computations that scale in different places agree to the
bit by chance.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

State = Mapping[str, Tensor]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "swish": F.silu,
}
PIECES = ["he@@", "llo", "wor@@", "ld", "the", "c@@", "at", "s@@", "its", "on", "a", "ma@@", "t", "."]
OTHER_PIECES = ["ha@@", "llo", "we@@", "lt", "die", "kat@@", "ze", "sit@@", "zt", "auf", "ei@@", "ner"]


def linear(state: State, name: str, x: Tensor) -> Tensor:
    """Apply a linear layer, with a bias if the state has one."""
    return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def layer_norm(state: State, name: str, x: Tensor, epsilon: float) -> Tensor:
    """Apply a layer norm."""
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], epsilon)


def rms_norm(state: State, name: str, x: Tensor, epsilon: float) -> Tensor:
    """Apply a norm that divides by the root mean square."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * state[f"{name}.weight"]


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor) -> Tensor:
    """Return multi-head attention of projected tensors (batch, length, width).

    ``mask``: (batch, 1 or query, key).
    """

    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    scores = split(query) @ split(key).transpose(2, 3) / math.sqrt(query.shape[-1] // heads)
    weights = scores.masked_fill(~mask[:, None], -math.inf).softmax(-1)
    return (weights @ split(value)).transpose(1, 2).flatten(2)


def key_mask(ids: Tensor, pad: int) -> Tensor:
    """Return which keys are no padding (batch, 1, key)."""
    return (ids != pad)[:, None]


def causal_mask(ids: Tensor) -> Tensor:
    """Return which keys each target position may see (1, query, key)."""
    length = ids.shape[1]
    return torch.ones(length, length, dtype=torch.bool).tril()[None]


def _angles(length: int, channels: Tensor, rate: float) -> Tensor:
    # Rounded as the toolkits round: other ways differ by 2e-4 at position 5000.
    return torch.arange(float(length))[:, None] * torch.exp(channels * -rate)


def interleaved_sinusoids(length: int, width: int) -> Tensor:
    """Return the paper's positions: sine and cosine alternate (length, width)."""
    angles = _angles(length, torch.arange(0.0, width, 2), math.log(10000) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def halved_sinusoids(length: int, width: int, *, last: int) -> Tensor:
    """Return positions with all sines before all cosines; the frequency number ``last`` is 1/10000."""
    angles = _angles(length, torch.arange(width / 2), math.log(10000) / last)
    return torch.cat((angles.sin(), angles.cos()), -1)


class RandomState(dict[str, Tensor]):
    """A state dict that grows: the same seed gives the same tensors."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def random(self, *shape: int) -> Tensor:
        """Return a tensor of normal random numbers that keep the size of activations."""
        return torch.randn(*shape, generator=self._generator) / math.sqrt(shape[-1])

    def linear(self, name: str, inputs: int, outputs: int, *, bias: bool = True) -> None:
        """Add a linear layer."""
        self[f"{name}.weight"] = self.random(outputs, inputs)
        if bias:
            self[f"{name}.bias"] = 0.3 * torch.randn(outputs, generator=self._generator)

    def norm(self, name: str, width: int, *, bias: bool = True) -> None:
        """Add a norm whose scale is not 1 and whose offset is not 0."""
        self[f"{name}.weight"] = 1 + 0.3 * torch.randn(width, generator=self._generator)
        if bias:
            self[f"{name}.bias"] = 0.3 * torch.randn(width, generator=self._generator)
