"""Tensors in safetensors files: checks that the format's own library does not make, and a hash of tensors."""

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transduce.files import open_regular

_LARGEST_HEADER = 100_000_000  # bytes; the library has the same limit


class StoredTensor(NamedTuple):
    """What a file says about one of its tensors."""

    shape: tuple[int, ...]
    dtype: str  # in the words of safetensors, such as F32


class StoredTensors(NamedTuple):
    """The header of a safetensors file."""

    tensors: dict[str, StoredTensor]
    metadata: dict[str, str]


def read_tensor_header(path: Path) -> StoredTensors:
    """Read names, shapes, types and metadata; a file that lies about them raises a `SafetensorError`."""
    _require_unique_names(path)
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        tensors = {
            name: StoredTensor(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()
        }
        return StoredTensors(tensors, file.metadata() or {})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors into memory; a file that lies about them raises a `SafetensorError`."""
    _require_unique_names(path)
    with safe_open(path, framework="pt") as file:
        # Copied, because the file would stay mapped into memory, and a later change to it change the tensors.
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118


def hash_tensors(tensors: Mapping[str, Tensor], text: str) -> str:
    """Return a hash of a text and of the names, types, shapes and values of tensors, in any order."""
    digest = hashlib.blake2b(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"blake2b:{digest.hexdigest()}"


def _require_unique_names(path: Path) -> None:
    """Refuse a header that names a tensor twice: the library would silently take the last one."""
    with open_regular(path) as file:
        prefix = file.read(8)
        size = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if size > _LARGEST_HEADER:
            raise SafetensorError(f"its header has {size:,} bytes")
        header = file.read(size)
    try:
        json.loads(header, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"its header cannot be read ({error})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} appears twice")
    return table
