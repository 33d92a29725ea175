"""Tensors as text: little-endian float16 (or float32) numbers in base64, with a table of what is where."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = float(torch.finfo(torch.float16).max)


def to_half(tensor: Tensor) -> Tensor:
    """Round to float16; finite numbers stay finite."""
    finite = tensor.detach().float().cpu()
    return torch.where(finite.isinf(), finite, finite.clamp(-LARGEST, LARGEST)).half()


def pack_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the numbers and a table, ``name: [offset, *shape]``; a shared tensor is stored once."""
    table: dict[str, list[int]] = {}
    places: dict[tuple[int, tuple[int, ...]], int] = {}
    parts: list[bytes] = []
    end = 0
    for name, tensor in tensors.items():
        key = tensor.data_ptr(), tuple(tensor.shape)
        if key not in places:
            places[key] = end
            parts.append(to_half(tensor).contiguous().numpy().astype("<f2").tobytes())
            end += tensor.numel()
        table[name] = [places[key], *tensor.shape]
    return {"table": table, "data": base64.b64encode(b"".join(parts)).decode("ascii")}


def pack_floats(tensor: Tensor) -> dict[str, Any]:
    """Return a tensor as float32 numbers."""
    numbers = np.ascontiguousarray(tensor.detach().float().cpu().numpy(), dtype="<f4")
    return {"shape": list(tensor.shape), "data": base64.b64encode(numbers.tobytes()).decode("ascii")}
