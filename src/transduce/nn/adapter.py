"""Low-rank additions to linear layers, by which a model is fine-tuned (LoRA: Hu et al., 2021).

A layer ``W x + b`` becomes ``W x + b + (alpha / rank) B A x`` with W and b frozen: A, (rank, inputs), starts
random and B, (outputs, rank), at zero, so that training starts from exactly the model that is adapted.
Merged, ``W + (alpha / rank) B A`` is a plain layer again.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import MultiHeadAttention
from transduce.nn.ssru import SSRU

DOWN, UP = "down", "up"  # the names of A and B inside a layer


class LowRankLinear(nn.Linear):
    """A frozen linear layer with a trained addition of low rank.

    Parallel projections that are one matrix product, such as W^Q, W^K and W^V, have one A, and their parts of
    B are stacked like the matrices themselves.
    """

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float) -> None:
        """Take over the weights of ``linear``; A and B are zero."""
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.down = nn.Parameter(linear.weight.new_zeros(rank, linear.in_features))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))

    def reset_parameters(self) -> None:
        """Leave the weights alone: they are those of another layer."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name that torch gives it)
        """Map (…, inputs) → (…, outputs)."""
        low = self.scale * F.linear(input, self.down)  # (…, rank)
        return F.linear(input, self.weight, self.bias) + F.linear(low, self.up)


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers of all attention, SSRU and feed-forward blocks, by name and in order."""
    return {
        f"{name}.{child}": layer
        for name, block in model.named_modules()
        if isinstance(block, MultiHeadAttention | SSRU | FeedForward)
        for child, layer in block.named_children()
        if isinstance(layer, nn.Linear)
    }


def adapt(model: nn.Module, layers: Collection[str], *, rank: int, alpha: float) -> None:
    """Freeze a model and give these of its `linear_layers` additions, which are zero.

    A layer that the model does not have, and no layer at all, is a `ValueError`.
    """
    known = linear_layers(model)
    if unknown := sorted({*layers} - {*known}):
        raise ValueError(f"there is no linear layer {unknown[0]!r} in a block that is adapted")
    if not layers:
        raise ValueError("there is no linear layer to adapt")
    model.requires_grad_(False)
    for name, layer in known.items():
        if name in layers:
            block, _, child = name.rpartition(".")
            setattr(model.get_submodule(block), child, LowRankLinear(layer, rank=rank, alpha=alpha))


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return A and B of every adapted layer by their names in the model; none if it is not adapted."""
    return {
        f"{name}.{part}": layer.get_parameter(part)
        for name, layer in model.named_modules()
        if isinstance(layer, LowRankLinear)
        for part in (DOWN, UP)
    }


def parameters_to_save(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return what tells a model apart from the one its training started from: all of it, or its adapter."""
    return adapter_parameters(model) or dict(model.named_parameters())


def initial_adapter(model: nn.Module, *, seed: int) -> dict[str, Tensor]:
    """Return the A and B that training starts from, for every adapted layer of a model.

    The entries of A are normal with variance 1 / inputs, so that A x is about as large as x; B is zero.
    """
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(parameter.shape, generator=generator) / parameter.size(1) ** 0.5
        if name.endswith(f".{DOWN}")
        else torch.zeros(parameter.shape)
        for name, parameter in adapter_parameters(model).items()
    }


@torch.no_grad()
def merged_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the plain model that computes the same as ``model`` with these ``weights``.

    ``weights`` has a tensor for each named parameter of the model, which may or may not be adapted.
    """
    merged = dict(weights)
    for name, layer in model.named_modules():
        if isinstance(layer, LowRankLinear):
            down, up = merged.pop(f"{name}.{DOWN}"), merged.pop(f"{name}.{UP}")
            merged[f"{name}.weight"] = torch.addmm(merged[f"{name}.weight"], up, down, alpha=layer.scale)
    return merged
