"""Read files written by ``torch.save`` without executing any code in them.

Such a file contains pickles, which `transduce.interop.pickle_interpreter` reads.
"""

import io
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from transduce.errors import ArtifactError
from transduce.interop.pickle_interpreter import Interpreter, RefusedError, Storage

_MAGIC = 0x1950A86A20F9469CFC6C  # the first number in files of torch 1.5 and earlier
_REMEDY = "give a file that contains only weights (a state dict), or convert it to safetensors"


def read_torch(path: str | Path, *, strict: bool = True) -> Any:
    """Read a file of ``torch.save``: containers, numbers, strings and tensors, on the CPU.

    Any other object is refused or, unless ``strict``, replaced by an `Unknown`.
    """
    path = Path(path).expanduser()
    with _reading(path), path.open("rb") as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return _read_zip(archive, strict)
        file.seek(0)
        return _read_legacy(file, strict)


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
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}", "give another file") from error
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        RuntimeError,
        EOFError,
        NotImplementedError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        # A damaged or forged file can cause any of these.
        raise ArtifactError(
            f"{path} is damaged, or not a file of torch: {error}", "copy the file again"
        ) from error


def _read_zip(archive: zipfile.ZipFile, strict: bool) -> Any:
    (program,) = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    root = program.removesuffix("data.pkl")
    if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
        raise RefusedError("has big-endian numbers, which are not supported")
    rows: dict[str, Tensor] = {}

    def data_of(storage: Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = _row(archive.read(f"{root}data/{storage.key}"), storage)
        return rows[storage.key]

    return Interpreter(data_of, strict).run(io.BytesIO(archive.read(program)))


def _read_legacy(file: IO[bytes], strict: bool) -> Any:
    """Read five programs and then the data of each storage; tensors are created first and filled last."""
    rows: dict[str, Tensor] = {}

    def data_of(storage: Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = torch.zeros(storage.size, dtype=storage.dtype)
        return rows[storage.key]

    interpreter = Interpreter(data_of, strict)
    magic = interpreter.run(file)
    if magic != _MAGIC:
        raise ValueError("it does not begin with torch's magic number")
    _version, system = interpreter.run(file), interpreter.run(file)
    if not system.get("little_endian", True):
        raise RefusedError("has big-endian numbers, which are not supported")
    content, keys = interpreter.run(file), interpreter.run(file)
    for key in keys:
        (size,) = struct.unpack("<q", file.read(8))
        row = rows[key]
        storage = Storage(row.dtype, key, size)
        if size != len(row):
            raise ValueError(f"storage {key} has {size} elements instead of {len(row)}")
        row.copy_(_row(file.read(size * row.element_size()), storage))
    return content


def _row(data: bytes, storage: Storage) -> Tensor:
    if len(data) != storage.size * storage.dtype.itemsize:
        raise ValueError(f"storage {storage.key} has {len(data)} bytes")
    return torch.frombuffer(bytearray(data), dtype=storage.dtype) if data else torch.empty(0)
