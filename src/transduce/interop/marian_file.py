"""Read a model of Marian, ``.npz`` or ``.bin``: options and named parameters, not yet a model."""

import math
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.errors import ArtifactError, DataError
from transduce.files import open_regular, user_path
from transduce.interop.binary_file import BinaryFile, reading, require_finite, tensor_of
from transduce.interop.marian_options import Option, parse_options

_KIND = "a model of Marian"
_OPTIONS = "special:model.yml"
_ALPHA = "_QuantMultA"
_VERSION = 1
_INT8 = 0x101
_FLOATS = {0x402: torch.float16, 0x404: torch.float32, 0x408: torch.float64}
# Rounded matrices that do not depend on the processor: of the branch that browsers use, and of the main one.
_INTGEMM = {0x4101: torch.int8, 0x4102: torch.int16, 0x10001: torch.int8, 0x10002: torch.int16}
_PACKED = 0x800 | 0x4000 | 0x8000 | 0x10000  # classes of matrices in the order that a processor needs

# Marian does not compress; these are for archives that were packed again.
_MAX_RATIO, _ALLOWANCE = 8, 1 << 20


@dataclass(frozen=True)
class MarianFile:
    """The content of a model file. Matrices are (in, out), embeddings (token, width), all float32."""

    path: Path
    options: dict[str, Option] = field(repr=False)
    parameters: dict[str, Tensor] = field(repr=False)
    multipliers: dict[str, float] = field(
        repr=False
    )  # of rounded parameters, which are integers / multiplier
    activation_multipliers: dict[str, float] = field(
        repr=False
    )  # by which each one's input was to be rounded


class _Item(NamedTuple):
    """One array of a file, and the number that it was multiplied with before it was rounded."""

    name: str
    tensor: Tensor
    multiplier: float | None = None


def read_marian(path: str | Path) -> MarianFile:
    """Read a model of float16, float32, or 8 or 16-bit integers (intgemm)."""
    path = user_path(path)
    with reading(path, _KIND), open_regular(path) as file:
        items = _read_npz(file) if zipfile.is_zipfile(file) else _read_bin(path, file)
        return _sorted(path, items)


def is_marian(path: Path) -> bool:
    """Return whether a file begins like a ``.bin`` of Marian; other files of this name have other numbers."""
    try:
        with open_regular(path) as file:
            return file.read(8) == struct.pack("<Q", _VERSION)
    except (OSError, DataError):
        return False


def _sorted(path: Path, items: Iterator[_Item]) -> MarianFile:
    """Tell options, parameters and the multipliers of activations apart."""
    found = MarianFile(path, {}, {}, {}, {})
    seen: set[str] = set()
    for name, tensor, multiplier in items:
        if name in seen:
            raise ValueError(f"it contains {name} twice")
        seen.add(name)
        if name == _OPTIONS:
            found.options.update(parse_options(bytes(tensor.flatten().tolist()).rstrip(b"\0").decode()))
        elif name.startswith("special:"):
            continue
        else:
            require_finite(name, tensor)
            if name.endswith(_ALPHA):
                found.activation_multipliers[name.removesuffix(_ALPHA)] = tensor.item()
                continue
            found.parameters[name] = tensor.float()
            if multiplier is not None:
                found.multipliers[name] = multiplier
    if _OPTIONS not in seen:
        raise ValueError(f"it has no {_OPTIONS}, the options of the model")
    return found


def _read_bin(path: Path, opened: BinaryIO) -> Iterator[_Item]:
    """Yield the arrays of a ``.bin`` file: all headers, then all names, all shapes, and all data."""
    opened.seek(0)
    file = BinaryFile(opened)
    version, count = file.numbers("Q", 2)
    if version != _VERSION:
        raise ValueError(f"it begins with {version}, not with the version {_VERSION}")
    headers = [file.numbers("Q", 4) for _ in range(count)]  # length of the name, type, rank, bytes
    names = [file.text(length) for length, _, _, _ in headers]
    shapes = [file.numbers("i", rank) for _, _, rank, _ in headers]
    file.block(file.number("Q"))  # padding
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        yield _item(path, name, kind, shape, file.block(size))
    file.end()


def _item(path: Path, name: str, kind: int, shape: tuple[int, ...], data: bytearray) -> _Item:
    """Interpret the bytes of one array, which may be followed by padding."""
    if name.startswith("special:") and kind == _INT8:
        return _Item(name, tensor_of(data, torch.uint8, (len(data),)))
    if kind in _INTGEMM:
        return _dequantized(name, _INTGEMM[kind], shape, data)
    if kind in _FLOATS:
        return _Item(name, tensor_of(_head(data, shape, _FLOATS[kind]), _FLOATS[kind], shape))
    if kind & _PACKED:
        raise ArtifactError(
            f"{path} is packed for one kind of processor ({name} has the type {kind:#x})",
            "give the .npz file that it was made from",
        )
    raise ValueError(f"{name} has the unknown type {kind:#x}")


def _head(data: bytearray, shape: tuple[int, ...], dtype: torch.dtype) -> bytearray:
    """Return the bytes before the padding."""
    return data[: math.prod(shape) * dtype.itemsize]


def _dequantized(name: str, dtype: torch.dtype, shape: tuple[int, ...], data: bytearray) -> _Item:
    """Return integers / multiplier; the multiplier follows the integers.

    Matrices are stored transposed, (out, in), while their shape is not; embeddings are stored as they are.
    """
    size = len(_head(data, shape, dtype))
    multiplier = tensor_of(data[size : size + 4], torch.float32, (1,)).item()
    if not (math.isfinite(multiplier) and multiplier > 0):
        raise ValueError(f"{name} has the multiplier {multiplier}")
    if "Wemb" in name:
        integers = tensor_of(data[:size], dtype, shape)
    else:
        rows, columns = shape  # more or fewer are a ValueError
        integers = tensor_of(data[:size], dtype, (columns, rows)).T
    # The reciprocal in float32 is what Marian multiplies with.
    return _Item(name, integers.float().contiguous() * (1 / torch.tensor(multiplier)), multiplier)


def _read_npz(file: BinaryIO) -> Iterator[_Item]:
    """Yield the arrays of an archive of NumPy."""
    with zipfile.ZipFile(file) as archive:
        allowed = _MAX_RATIO * file.seek(0, 2) + _ALLOWANCE
        if sum(member.file_size for member in archive.infolist()) > allowed:
            raise ValueError("it expands to far more than its own size")
        for member in archive.infolist():
            with archive.open(member) as opened:
                yield _Item(member.filename.removesuffix(".npy"), _read_array(opened, member.file_size))


def _read_array(file: IO[bytes], size: int) -> Tensor:
    """Read one array of numbers, after its header is known to be true."""
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[np.lib.format.read_magic(file)]
    shape, by_columns, dtype = read_header(file)
    if dtype.kind not in "fiuS" or dtype.hasobject:
        raise ValueError(f"an array in it has the type {dtype}")
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array of the shape {shape} in it has {size:,} bytes")
    data = file.read(math.prod(shape) * dtype.itemsize)
    if dtype.itemsize == 1 or dtype.kind == "S":
        return tensor_of(bytearray(data), torch.uint8, (len(data),))
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")
    return torch.from_numpy(array.astype(dtype.newbyteorder("="), order="C"))
