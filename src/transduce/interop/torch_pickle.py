"""Read files written by ``torch.save`` without executing any code in them.

Such a file contains pickles, which `transduce.interop.pickle_interpreter` reads. What is read stays in
proportion to the size of the file, whatever sizes the file states.
"""

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from transduce.errors import ArtifactError, reason_of, remedy_for
from transduce.files import user_path
from transduce.interop.binary_file import not_a_model
from transduce.interop.pickle_interpreter import (
    MAX_PROGRAM,
    Interpreter,
    RefusedError,
    Storage,
    storage_key,
)

_MAGIC = 0x1950A86A20F9469CFC6C  # the first number in files of torch 1.5 and earlier
_REMEDY = "give a file that contains only weights (a state dict), or convert it to safetensors"

# Archives of torch are not compressed. These are for archives that were packed again.
_ALLOWANCE = 1 << 20  # bytes that a small archive may expand to
_MAX_RATIO, _MAX_MEMBER_RATIO = 4, 8
# The sum of all tensors, as a multiple of the file: those of a model may share their numbers.
_MAX_TENSOR_RATIO, _TENSOR_ALLOWANCE = 64, 1 << 26
# What checkpoints of training contain beside tensors: packages, and single names of larger ones.
_HARMLESS = {
    *("numpy", "collections", "argparse", "enum", "datetime", "pathlib"),
    *("functools partial", "_codecs encode", "copyreg _reconstructor", "copy_reg _reconstructor"),
    *(
        f"{module} {name}"
        for module in ("builtins", "__builtin__")
        for name in ("set", "object", "bytearray")
    ),
    *("torch device", "torch Size", "torch.serialization _get_layout"),
}


def read_torch(path: str | Path, *, strict: bool = True, packages: Collection[str] | None = None) -> Any:
    """Read a file of ``torch.save``: containers, numbers, strings and tensors, on the CPU.

    Any other object is refused or, unless ``strict``, replaced by an `Unknown`. If ``packages`` are given,
    only objects of these packages are.
    """
    path = user_path(path)
    with _reading(path), _opened(path) as file:
        new = partial(Interpreter, strict=strict, tensor_bytes=_tensor_bytes(_size(file)), packages=packages)
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return _read_zip(archive, _size(file), new)
        file.seek(0)
        return _read_legacy(file, new)


def read_checkpoint(path: str | Path, *packages: str) -> Any:
    """Read a checkpoint: tensors, and objects of these packages and of common ones as inert records.

    A file that would call anything else is refused, with the name of what it would call.
    """
    return read_torch(path, strict=False, packages={*_HARMLESS, *packages})


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict; the file must contain nothing else."""
    state = read_torch(path)
    if not isinstance(state, dict) or not state or not all(isinstance(t, Tensor) for t in state.values()):
        raise ArtifactError(f"{path} is not a state dict", _REMEDY)
    return {str(name): tensor for name, tensor in state.items()}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        raise ArtifactError(f"{path} {error}", _REMEDY) from None
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except MemoryError as error:
        raise ArtifactError(f"{path} does not fit in memory", "give a smaller file") from error
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        RuntimeError,
        EOFError,
        NotImplementedError,
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        # A damaged or forged file can cause any of these.
        raise not_a_model(path, "a file of torch.save", error) from error


def _opened(path: Path) -> IO[bytes]:
    """Open a file, but neither a device nor a pipe, which may have no end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise RefusedError("is a device or a pipe")
    return path.open("rb")


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _tensor_bytes(file_size: int) -> int:
    return _MAX_TENSOR_RATIO * file_size + _TENSOR_ALLOWANCE


def _read_zip(archive: zipfile.ZipFile, file_size: int, new: Callable[..., Interpreter]) -> Any:
    _check_sizes(archive, file_size)
    programs = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    if len(programs) != 1:
        raise ValueError("it is another archive (zip)")
    program = programs[0]
    root = program.removesuffix("data.pkl")
    if f"{root}byteorder" in archive.namelist() and _member(archive, f"{root}byteorder") != b"little":
        raise RefusedError("has big-endian numbers, which are not supported")
    rows: dict[str, Tensor] = {}

    def data_of(storage: Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = _row(_member(archive, f"{root}data/{storage.key}"), storage)
        return _checked_row(rows[storage.key], storage)

    interpreter = new(data_of)
    return interpreter.run(io.BytesIO(_member(archive, program, MAX_PROGRAM)))


def _check_sizes(archive: zipfile.ZipFile, file_size: int) -> None:
    """Refuse archives that expand to far more than their own size, or contain the same bytes many times."""
    members = archive.infolist()
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RefusedError("is compressed in a way that torch does not read")
        expanded = member.file_size > _MAX_MEMBER_RATIO * member.compress_size + _ALLOWANCE
        if member.compress_size > file_size or expanded:
            raise RefusedError(f"expands to far more than its own {file_size:,} bytes")
    if sum(member.file_size for member in members) > _MAX_RATIO * file_size + _ALLOWANCE:
        raise RefusedError(f"expands to far more than its own {file_size:,} bytes")


def _member(archive: zipfile.ZipFile, name: str, limit: int | None = None) -> bytes:
    """Read a member of an archive, no further than to the size that was checked."""
    member = archive.getinfo(name)
    if limit is not None and member.file_size > limit:
        raise RefusedError(f"has more than {limit:,} bytes apart from its numbers")
    with archive.open(member) as file:
        return file.read(member.file_size)


def _read_legacy(file: IO[bytes], new: Callable[..., Interpreter]) -> Any:
    """Read five programs and then the data of each storage; tensors are created first and filled last."""
    rows: dict[str, Tensor] = {}
    room = _size(file)

    def data_of(storage: Storage) -> Tensor:
        nonlocal room
        if storage.key not in rows:
            room -= storage.size * storage.dtype.itemsize
            if room < 0:
                raise ValueError("its tensors are larger than the file")
            rows[storage.key] = torch.zeros(storage.size, dtype=storage.dtype)
        return _checked_row(rows[storage.key], storage)

    interpreter = new(data_of)
    magic = interpreter.run(file)
    if magic != _MAGIC:
        raise ValueError("it is another pickle")
    _version, system = interpreter.run(file), interpreter.run(file)
    if not system.get("little_endian", True):
        raise RefusedError("has big-endian numbers, which are not supported")
    content, keys = interpreter.run(file), interpreter.run(file)
    _fill(rows, keys, file)
    return content


def _fill(rows: dict[str, Tensor], keys: Any, file: IO[bytes]) -> None:
    """Read the numbers of each storage, in the order of these keys."""
    if not isinstance(keys, list):
        raise ValueError("it has no list of storages")
    missing = set(rows)
    for key in map(storage_key, keys):
        (size,) = struct.unpack("<q", file.read(8))
        row = rows[key]
        if size != len(row):
            raise ValueError(f"storage {key} has {size} elements instead of {len(row)}")
        row.copy_(_row(file.read(size * row.element_size()), Storage(row.dtype, key, size)))
        missing.discard(key)
    if missing:
        raise ValueError(f"storage {min(missing)} is missing")


def _row(data: bytes, storage: Storage) -> Tensor:
    if len(data) != storage.size * storage.dtype.itemsize:
        raise ValueError(f"storage {storage.key} has {len(data)} bytes")
    return (
        torch.frombuffer(bytearray(data), dtype=storage.dtype)
        if data
        else torch.empty(0, dtype=storage.dtype)
    )


def _checked_row(row: Tensor, storage: Storage) -> Tensor:
    if (row.dtype, len(row)) != (storage.dtype, storage.size):
        raise ValueError(f"storage {storage.key} has two types or sizes")
    return row
