"""Matrices in 8 bits: integers from −127 to 127 and one scale per row, a quarter of float32's size.

A matrix that was restored has the same integers when the engine rounds it again to 127 levels; instruction
sets with fewer levels round it to their own.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

LEVELS = 127
SCALE = "_scale"  # ends the name of a matrix's scales, float32 (rows,)
_SMALLEST = 1e-12  # the largest value of a row of zeros

Shapes = Mapping[str, tuple[int, ...]]


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a parameter is rounded: matrices and embeddings, but not tables of positions."""
    return len(shape) == 2 and "positions" not in name


def round_matrices(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return matrices as int8 with their scales beside them, and everything else as float32."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        values = tensor.detach().float()
        if is_matrix(name, tuple(tensor.shape)):
            scales = values.abs().amax(dim=1).clamp(min=_SMALLEST) / LEVELS
            stored[name] = (values / scales[:, None]).round().to(torch.int8)
            stored[name + SCALE] = scales
        else:
            stored[name] = values
    return {name: tensor.contiguous() for name, tensor in stored.items()}


def stored_shapes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what `round_matrices` returns for parameters of these shapes."""
    scales = {name + SCALE: shape[:1] for name, shape in shapes.items() if is_matrix(name, shape)}
    return {**shapes, **scales}


def stored_type(name: str, shape: tuple[int, ...]) -> str:
    """Return the type of a tensor that `round_matrices` returned, in the words of safetensors."""
    return "I8" if is_matrix(name, shape) else "F32"


def restore_matrices(stored: Mapping[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
    """Return all parameters in float32; scales that are not positive raise a `ValueError`."""
    restored: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if is_matrix(name, shape):
            scales = stored[name + SCALE]
            if not (scales > 0).all():
                raise ValueError(f"{name}{SCALE} has values that are not positive")
            restored[name] = stored[name].float() * scales[:, None]
        else:
            restored[name] = stored[name]
    return restored
