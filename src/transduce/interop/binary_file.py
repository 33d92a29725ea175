"""Sequential reading of binary files that may be shorter than they say."""

import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from transduce.errors import ArtifactError, DataError, reason_of, remedy_for
from transduce.interop.file_kinds import kind_of

_LONGEST_REASON = 200  # characters
_MAX_RANK = 8
_ABSURD = 1 << 40  # bytes


class BinaryFile:
    """A cursor over an open file of little-endian data.

    No more is read or allocated than the file has, whatever sizes it states; the rest is a `ValueError`.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = os.fstat(file.fileno()).st_size

    def block(self, count: int) -> bytearray:
        """Read ``count`` bytes."""
        if count > self._left:
            missing = count - self._left
            if missing > _ABSURD:
                raise ValueError("a size in it is larger than any file")
            raise ValueError(f"at least {missing:,} bytes are missing at its end, or a size in it is wrong")
        data = bytearray(self._file.read(count))
        if len(data) != count:
            raise ValueError("it became shorter while it was read")
        self._left -= count
        return data

    def numbers(self, code: str, count: int) -> tuple[int, ...]:
        """Read integers of one type, a format character of `struct`."""
        return struct.unpack(f"<{count}{code}", self.block(count * struct.calcsize(f"<{code}")))

    def number(self, code: str) -> int:
        """Read one integer, its type a format character of `struct`."""
        return self.numbers(code, 1)[0]

    def text(self, length: int) -> str:
        """Read a string of ``length`` bytes, of which the last is NUL."""
        data = self.block(length)
        if data[-1:] != b"\0" or 0 in data[:-1]:
            raise ValueError("a name in it does not end where it should")
        return data[:-1].decode()

    def end(self) -> None:
        """Require that everything has been read."""
        if self._left:
            raise ValueError(f"it has {self._left:,} more bytes than it should have")


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a missing, damaged or forged file causes into an `ArtifactError`.

    ``kind`` is what the file should be, with an article.
    """
    try:
        yield
    except DataError as error:
        raise ArtifactError(error.problem, error.remedy) from error
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except MemoryError as error:
        raise ArtifactError(f"{path} does not fit in memory", "give a smaller file") from error
    except (
        ValueError,  # also of decoding text
        KeyError,
        TypeError,
        SyntaxError,
        OverflowError,
        RuntimeError,
        EOFError,
        NotImplementedError,
        struct.error,
        tokenize.TokenError,  # of NumPy's headers
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise not_a_model(path, kind, error) from error


def not_a_model(path: Path, kind: str, error: Exception) -> ArtifactError:
    """Return the error for a file that is not what it should be, ``kind``, which has an article."""
    found = kind_of(path)
    if found is not None:
        return ArtifactError(f"{path} is {found.name}, not {kind}", found.remedy)
    return ArtifactError(f"{path} is damaged, or not {kind}: {_plain_reason(error)}", "copy the file again")


def _plain_reason(error: Exception) -> str:
    """Return what is wrong with a file, without the words of the Python library that found it."""
    if isinstance(error, UnicodeDecodeError):
        return "a name in it is not a text"
    if isinstance(error, EOFError):
        return "it ends too early"
    if type(error) is ValueError or isinstance(error, zipfile.BadZipFile):
        return str(error)[:_LONGEST_REASON]
    return "its parts do not fit together"


def tensor_of(data: bytearray, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Return a tensor over these bytes; sizes that do not match are a `ValueError`."""
    if len(shape) > _MAX_RANK or min(shape, default=1) < 1:
        raise ValueError(f"a tensor in it has the shape {tuple(shape[:_MAX_RANK])}")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"a tensor of the shape {tuple(shape)} in it has {len(data):,} bytes")
    return torch.frombuffer(data, dtype=dtype).reshape(tuple(shape))


def require_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinity."""
    # A sum is finite only if all numbers are. It needs no copy, and float64 cannot overflow here.
    if not tensor.sum(dtype=torch.float64).isfinite():
        raise ValueError(f"{name} contains NaN or infinity")
