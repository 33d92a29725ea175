"""The compiled kernels: inner loops in C, for processors with AVX-512 VNNI where a compiler is installed.

`kernels.c` is compiled on first use, which takes a second, and kept in the user's cache folder. Set
``TRANSDUCE_KERNELS=off`` to run without it.
"""

import ctypes
import hashlib
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

from transduce.machine import cpu_reports

SOURCE = Path(__file__).with_name("kernels.c")
FEATURES = {  # names in /proc/cpuinfo → names of the compiler's options
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512_vnni": "avx512vnni",
    "fma": "fma",
}
LANES, PANEL = 16, 64  # floats in a vector register; outputs of a linear layer that are computed together
MAX_KEYS = 8192  # the kernels keep the attention weights of a query on a thread's stack


class LinearStruct(ctypes.Structure):
    """A linear layer, as C sees it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "scales", "offsets", "bias")),
        *((name, ctypes.c_int32) for name in ("d_in", "d_out")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernels, or ``None`` if this machine cannot use them."""
    switch = os.environ.get("TRANSDUCE_KERNELS", "on").lower()
    if switch in {"off", "0", "no", "false"} or not all(map(cpu_reports, FEATURES)):
        return None
    with suppress(OSError, subprocess.SubprocessError, RuntimeError):  # RuntimeError: no home folder
        loaded = ctypes.CDLL(str(_compiled()))
        pointer, size, count = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
        loaded.linear.argtypes = [ctypes.POINTER(LinearStruct), pointer, pointer, size, count]
        loaded.encode.argtypes = [pointer, pointer, size, pointer, pointer, count]
        loaded.step.argtypes = [*([pointer] * 4), count]
        loaded.move.argtypes = [pointer, size, size, pointer, *([size] * 4)]
        loaded.advance.argtypes = [*([pointer] * 3), count]
        return loaded
    return None


def _compiled() -> Path:
    """Return the path of the library; compile it if it does not exist yet."""
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
        raise PermissionError(f"other users can write to {folder}")  # and we would run their code
    path = folder / f"kernels-{name}.so"
    if not path.exists() or not path.stat().st_size:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # another process may compile it, too
            compiled = Path(scratch) / path.name
            subprocess.run(  # noqa: S603
                [*command, str(SOURCE), "-o", str(compiled), "-lm"], check=True, capture_output=True
            )
            with compiled.open("rb") as file:
                os.fsync(file.fileno())
            compiled.replace(path)
    return path


def required_library() -> ctypes.CDLL:
    """Return the compiled kernels where they are known to exist."""
    loaded = library()
    assert loaded is not None  # noqa: S101
    return loaded


class PackedLinear:
    """``x W + b`` in 8 bits: W with one scale per output, x with one scale per row, quantised on the fly."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Pack weight (out, in) and bias (out,); ``in`` must be a multiple of four."""
        d_out, d_in = weight.shape
        missing = -d_out % PANEL
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        steps = torch.nn.functional.pad((weight / scales[:, None]).round(), (0, 0, 0, missing)).to(torch.int8)
        bias = torch.zeros(d_out) if bias is None else bias.detach().float()
        self._sizes = d_in, d_out
        self._tensors = (  # kept alive for as long as the struct points to them
            steps.view(-1, PANEL, d_in // 4, 4).transpose(1, 2).contiguous(),
            torch.nn.functional.pad(scales, (0, missing)),
            -128 * steps.sum(dim=1, dtype=torch.int32),
            torch.nn.functional.pad(bias, (0, missing)),
        )
        self.struct = self._make_struct()

    def _make_struct(self) -> LinearStruct:
        return LinearStruct(*(part.data_ptr() for part in self._tensors), *self._sizes)

    def __getstate__(self) -> tuple[object, object]:
        """Leave the pointers out: a copy has its own memory."""
        return self._sizes, self._tensors

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self._sizes, self._tensors = state
        self.struct = self._make_struct()

    def __call__(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out), both float32."""
        if x.size(-1) != self.struct.d_in:
            raise ValueError(f"the linear layer takes inputs of width {self.struct.d_in}, not {x.size(-1)}")
        x = x.float().contiguous()
        y = x.new_empty(*x.shape[:-1], self.struct.d_out)
        rows = x.shape[:-1].numel()
        if not required_library().linear(
            self.struct, x.data_ptr(), y.data_ptr(), rows, torch.get_num_threads()
        ):
            raise MemoryError(f"cannot allocate {x.numel():,} bytes")
        return y


def can_pack(weight: Tensor) -> bool:
    """Return whether `PackedLinear` can compute with this weight, (out, in)."""
    return weight.device.type == "cpu" and weight.size(1) % 4 == 0 and library() is not None


def move_rows(arrays: Sequence[Tensor], rows: Tensor, filled: int) -> bool:
    """Replace row i by row rows[i] in the first ``filled`` positions of each array; return ``True`` if done.

    The arrays, (batch, parts, length, width), have one shape and dtype. The kernel declines what it cannot
    do in place, such as rows that swap.
    """
    first = arrays[0]
    shape, size = first.shape, first.element_size()
    if (loaded := library()) is None or first.device.type != "cpu":
        return False
    if not all(each.is_contiguous() and each.shape == shape for each in arrays):
        return False
    rows = rows.long().contiguous()
    batch, parts, length, width = shape
    done: int = loaded.move(
        (ctypes.c_void_p * len(arrays))(*(each.data_ptr() for each in arrays)),
        *(len(arrays), batch, rows.data_ptr(), rows.size(0)),
        *(parts, length * width * size, min(filled, length) * width * size),
    )
    return bool(done)
