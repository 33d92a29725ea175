"""Inner loops in C, where there is a compiler and a processor for them; torch does it elsewhere.

`kernels.c` is compiled when it is first needed, which takes a second, and kept in the user's cache. To do
without: ``TRANSDUCE_KERNELS=off``.
"""

import ctypes
import hashlib
import math
import os
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.machine import announces

SOURCE = Path(__file__).with_name("kernels.c")
FEATURES = {  # as the system names them, and the compiler
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512_vnni": "avx512vnni",
    "fma": "fma",
}
LANES, PANEL = 16, 64  # numbers in a register; outputs that are computed together
LONGEST = 8192  # keys whose weights are put on a thread's stack


class Map(ctypes.Structure):
    """A linear map, as C sees it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "scales", "offsets", "bias")),
        *((name, ctypes.c_int32) for name in ("d_in", "d_out")),
    )


class _Attention(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "mask", "out", "home", "rows")),
        *((name, ctypes.c_int64) for name in ("rows_stride", "known", "batch", "heads", "queries")),
        *((name, ctypes.c_int64) for name in ("length", "d_k", "d_v")),
        *((f"{name}_strides", ctypes.c_int64 * 3) for name in ("query", "key", "value")),
        ("scale", ctypes.c_float),
    )


class _Choice(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "sums", "silent", "scores", "parents", "tokens")),
        *((name, ctypes.c_int64) for name in ("sentences", "width", "vocabulary", "count", "silents")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, if this machine can have them."""
    wish = os.environ.get("TRANSDUCE_KERNELS", "on").lower()
    if wish in {"off", "0", "no", "false"} or not all(map(announces, FEATURES)):
        return None
    with suppress(OSError, subprocess.SubprocessError, RuntimeError):  # the last if there is no home
        found = ctypes.CDLL(str(_compiled()))
        pointer, size, count = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
        found.linear.argtypes = [ctypes.POINTER(Map), pointer, pointer, size, count]
        found.attend.argtypes, found.attend.restype = [ctypes.POINTER(_Attention), count], None
        found.choose.argtypes, found.choose.restype = [ctypes.POINTER(_Choice), count], None
        found.encode.argtypes = [pointer, pointer, size, pointer, pointer, count]
        found.step.argtypes = [*([pointer] * 4), count]
        found.move.argtypes = [pointer, size, size, pointer, *([size] * 4)]
        found.advance.argtypes = [*([pointer] * 3), count]
        return found
    return None


def _compiled() -> Path:
    """Where the library is, compiled now if it is not there yet."""
    command = [
        *shlex.split(os.environ.get("CC") or "cc"),
        *("-O3", "-std=c11", "-shared", "-fPIC", "-pthread", "-Wl,-Bsymbolic"),
        *(f"-m{name}" for name in FEATURES.values()),
    ]
    name = hashlib.sha256(" ".join(command).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "transduce"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write into {folder}")  # and what is there is run
    path = folder / f"kernels-{name}.so"
    if not path.exists() or not path.stat().st_size:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # others may do the same at the same time
            made = Path(scratch) / path.name
            subprocess.run(  # noqa: S603
                [*command, str(SOURCE), "-o", str(made), "-lm"], check=True, capture_output=True
            )
            with made.open("rb") as file:
                os.fsync(file.fileno())
            made.replace(path)
    return path


def there() -> ctypes.CDLL:
    """The library, where it is known to be there."""
    found = library()
    assert found is not None  # noqa: S101
    return found


class PackedLinear:
    """``x W + b``: W rounded to 8 bits, with a scale for each output; each row of x as well, as it comes."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (out, in), bias (out,); in must be a multiple of four, and the library there."""
        d_out, d_in = weight.shape
        missing = -d_out % PANEL
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        steps = torch.nn.functional.pad((weight / scales[:, None]).round(), (0, 0, 0, missing)).to(torch.int8)
        bias = torch.zeros(d_out) if bias is None else bias.detach().float()
        self._sizes = d_in, d_out
        self._held = (  # for as long as the map points there
            steps.view(-1, PANEL, d_in // 4, 4).transpose(1, 2).contiguous(),
            torch.nn.functional.pad(scales, (0, missing)),
            -128 * steps.sum(dim=1, dtype=torch.int32),
            torch.nn.functional.pad(bias, (0, missing)),
        )
        self.map = self._point()

    def _point(self) -> Map:
        return Map(*(part.data_ptr() for part in self._held), *self._sizes)

    def __getstate__(self) -> tuple[object, object]:
        """For copies, which have their own memory."""
        return self._sizes, self._held

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self._sizes, self._held = state
        self.map = self._point()

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out), both float32."""
        if x.size(-1) != self.map.d_in:
            raise ValueError(f"the map takes {self.map.d_in} numbers, not {x.size(-1)}")
        x = x.float().contiguous()
        y = x.new_empty(*x.shape[:-1], self.map.d_out)
        rows = x.shape[:-1].numel()
        if not there().linear(self.map, x.data_ptr(), y.data_ptr(), rows, torch.get_num_threads()):
            raise MemoryError(f"no room for {x.numel():,} bytes")
        return y


def can_pack(weight: Tensor) -> bool:
    """Whether `PackedLinear` can compute with this weight, (out, in)."""
    return weight.device.type == "cpu" and weight.size(1) % 4 == 0 and library() is not None


def can_attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether `attend` can compute this."""
    return (
        all(part.dtype == torch.float32 and part.device.type == "cpu" for part in (query, key, value))
        and all(part.dim() == 4 and part.stride(-1) == 1 for part in (query, key, value))
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and key.shape[2:] == (value.size(2), query.size(-1))
        and query.size(-1) % LANES == 0
        and value.size(-1) % LANES == 0
        and key.size(-2) <= LONGEST
        and (mask is None or _is_of_keys(mask, key))
        and library() is not None
    )


def _is_of_keys(mask: Tensor, key: Tensor) -> bool:
    return (
        mask.dtype == torch.bool and mask.shape == (key.size(0), 1, 1, key.size(2)) and mask.is_contiguous()
    )


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """``softmax(QKᵀ/√d_k) V`` where queries are few.

    query (batch, heads, query, d_k), key (batch, heads, key, d_k), value (batch, heads, key, d_v), mask
    (batch, 1, 1, key) → (batch, heads, query, d_v), in memory that has a position's heads side by side.
    """
    batch, heads, queries, d_k = query.shape
    length, d_v = value.shape[-2:]
    out = query.new_empty(batch, queries, heads, d_v)
    strides = [(ctypes.c_int64 * 3)(*part.stride()[:3]) for part in (query, key, value)]
    attention = _Attention(
        *(part.data_ptr() for part in (query, key, value)),
        None if mask is None else mask.data_ptr(),
        *(out.data_ptr(), None, None, 0, 0),
        *(batch, heads, queries, length, d_k, d_v),
        *strides,
        1 / math.sqrt(d_k),
    )
    there().attend(attention, torch.get_num_threads())
    return out.transpose(1, 2)


def can_choose(logits: Tensor, count: int) -> bool:
    """Whether `choose` can compute this."""
    return (
        logits.dtype == torch.float32
        and logits.device.type == "cpu"
        and logits.is_contiguous()
        and 0 < count <= logits.size(1) * logits.size(2)
        and library() is not None
    )


def choose(logits: Tensor, sums: Tensor, count: int, silent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ``count`` highest of log softmax(logits) + sums over each sentence's hypotheses, best first.

    logits (sentences, width, vocabulary), sums (sentences, width), silent (n,) tokens that are left out →
    scores, hypotheses and tokens, (sentences, count) each. What has no probability may stand in as anything.
    If there are logits that are no numbers, neither are the scores.
    """
    sentences, width, vocabulary = logits.shape
    sums, silent = sums.float().contiguous(), silent.long()
    scores = logits.new_empty(sentences, count)
    parents, tokens = (torch.empty(sentences, count, dtype=torch.long) for _ in range(2))
    choice = _Choice(
        *(part.data_ptr() for part in (logits, sums, silent, scores, parents, tokens)),
        *(sentences, width, vocabulary, count, len(silent)),
    )
    there().choose(choice, torch.get_num_threads())
    return scores, parents, tokens


def move_rows(arrays: Sequence[Tensor], rows: Tensor, filled: int) -> bool:
    """Make row i what row rows[i] is, in the first ``filled`` positions of each of some arrays.

    The arrays are alike, (batch, parts, length, width), of one type and on one device. Gives whether that was
    done: if rows change places, for example, it is not.
    """
    first = arrays[0]
    shape, size = first.shape, first.element_size()
    if (found := library()) is None or first.device.type != "cpu":
        return False
    if not all(each.is_contiguous() and each.shape == shape for each in arrays):
        return False
    rows = rows.long().contiguous()
    batch, parts, length, width = shape
    done: int = found.move(
        (ctypes.c_void_p * len(arrays))(*(each.data_ptr() for each in arrays)),
        *(len(arrays), batch, rows.data_ptr(), rows.size(0)),
        *(parts, length * width * size, min(filled, length) * width * size),
    )
    return bool(done)
