"""The compiled library, and the instruction set that it computes with on this machine.

The library is compiled when the package is installed (``setup.py``), and contains every instruction set of
its architecture. ``TRANSDUCE_ENGINE`` forces one of them (``avx2``, ``avx512vnni``, ``neon``, …, ``generic``
for plain C), or ``torch`` to compute without the library.
"""

import ctypes
import os
from ctypes import c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from transduce.engine.structures import native_layout, python_layout
from transduce.errors import ConfigError

VARIABLE = "TRANSDUCE_ENGINE"
NO_MEMORY, BAD_ARGUMENT, NAN_LOGITS = 1, 2, 3  # error codes
_NAMES = {
    "avx512bf16": "AVX-512 VNNI and BF16",
    "avx512vnni": "AVX-512 VNNI",
    "avxvnni": "AVX-VNNI",
    "avx512": "AVX-512",
    "avx2": "AVX2",
    "neondot": "NEON with dot products",
    "neon": "NEON",
    "generic": "plain C",
}


@dataclass(frozen=True)
class Engine:
    """An instruction set, and how weights are packed for it."""

    name: str
    kernels: int  # address of its functions
    panel: int  # outputs of a linear layer that are computed together
    input_limit: int  # the largest 8-bit input, before
    input_offset: int  # this is added to it, and
    weight_limit: int  # the largest 8-bit weight
    is_fast: bool  # whether it has vector instructions of its own

    def __reduce__(self) -> tuple[Any, ...]:
        """Find the instruction set by its name: another process has the functions at other addresses."""
        return _engine_named, (self.name,)

    @property
    def description(self) -> str:
        """The name that processor manuals use."""
        return _NAMES.get(self.name, self.name)


def _engine_named(name: str) -> Engine:
    for each in supported_engines():
        if each.name == name:
            return each
    raise ConfigError(
        f"this machine lacks the instruction set {name}, for which the model was packed",
        "load the model from its folder",
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library, or ``None`` if it was not compiled or does not fit this version."""
    for path in sorted(Path(__file__).parent.glob("_native*")):
        if path.suffix not in (".so", ".dylib", ".pyd", ".dll"):
            continue
        try:
            loaded = ctypes.CDLL(str(path))
            if native_layout(loaded) == python_layout():
                return _declared(loaded)
        except (OSError, ValueError, AttributeError):  # of another architecture, or of an older version
            continue
    return None


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of all functions."""
    loaded.transduce_set_name.argtypes, loaded.transduce_set_name.restype = [c_int32], c_char_p
    loaded.transduce_set.argtypes, loaded.transduce_set.restype = [c_int32], c_void_p
    loaded.transduce_numbers.argtypes, loaded.transduce_numbers.restype = [c_void_p, c_void_p], None
    pointer = c_void_p
    for name, arguments in {
        "linear": [pointer, pointer, pointer, pointer, c_int64, c_int32],
        "encode": [pointer, pointer, pointer, c_int64, pointer, pointer, c_int32],
        "project": [pointer, pointer, pointer, c_int64, c_int64, pointer, pointer, c_int32],
        "step": [pointer, pointer, pointer, pointer, c_int32],
        "search_add_source": [
            *(pointer, c_int64, pointer, c_int64, c_int64),
            *(pointer, c_int64, pointer, c_int64, c_int32),
        ],
        "search_add_prompt": [pointer, c_int64, pointer, c_int64, c_int64, c_int32],
        "search_advance": [pointer, c_int64, c_int32],
        "search_state": [pointer, c_int64],
        "search_release": [pointer, c_int64],
        "residual": [pointer, pointer, c_int32],
        "residual_backward": [pointer, pointer, pointer, pointer, c_int32],
        "cross_entropy": [pointer, pointer, pointer, c_int64, c_int64, c_float, pointer, c_int32],
        "attention": [pointer, pointer, c_int32, c_int32],
        "relu_backward": [pointer, pointer, pointer, c_int64, c_int64, pointer, c_int32],
    }.items():
        function = getattr(loaded, f"transduce_{name}")
        function.argtypes, function.restype = arguments, c_int
    loaded.transduce_use_team.argtypes, loaded.transduce_use_team.restype = [pointer] * 3, None
    loaded.transduce_search_new.argtypes = [pointer, pointer, pointer]
    loaded.transduce_search_new.restype = c_void_p
    loaded.transduce_search_penalties.argtypes = [pointer, pointer, c_int64]
    loaded.transduce_search_penalties.restype = None
    loaded.transduce_search_free.argtypes, loaded.transduce_search_free.restype = [pointer], None
    loaded.transduce_search_result.argtypes = [pointer, c_int64, c_int64, pointer, pointer, pointer]
    loaded.transduce_search_result.restype = c_int64
    return loaded


def required_library() -> ctypes.CDLL:
    """Return the compiled library where it is known to exist."""
    loaded = library()
    assert loaded is not None  # noqa: S101
    return loaded


@cache
def supported_engines() -> tuple[Engine, ...]:
    """Return the instruction sets that this processor has, the fastest first."""
    loaded, found = library(), []
    index = 0
    while loaded is not None and (name := loaded.transduce_set_name(index)) is not None:
        if kernels := loaded.transduce_set(index):
            numbers = (c_int32 * 5)()
            loaded.transduce_numbers(kernels, numbers)
            panel, input_limit, input_offset, weight_limit, is_fast = numbers
            found.append(
                Engine(
                    name=name.decode(),
                    kernels=kernels,
                    panel=panel,
                    input_limit=input_limit,
                    input_offset=input_offset,
                    weight_limit=weight_limit,
                    is_fast=bool(is_fast),
                )
            )
        index += 1
    return tuple(found)


def engine() -> Engine | None:
    """Return the instruction set to compute with; ``None`` if torch computes."""
    wanted = os.environ.get(VARIABLE, "").lower()
    engines = supported_engines()
    if not wanted:
        return engines[0] if engines and engines[0].is_fast else None
    if wanted == "torch":
        return None
    for each in engines:
        if each.name == wanted:
            return each
    names = ", ".join([each.name for each in engines] + ["torch"])
    raise ConfigError(f"{VARIABLE} is {wanted!r}, which this machine cannot use", f"use one of: {names}")


def check(error: int, what: str) -> None:
    """Raise an error for the code that a function of the library returned."""
    if error == NO_MEMORY:
        raise MemoryError(f"cannot allocate memory for {what}")
    if error == NAN_LOGITS:
        raise ArithmeticError("the logits are NaN")
    if error:
        raise ValueError(f"the engine cannot compute {what}: an argument is out of range")
