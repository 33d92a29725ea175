"""Weights that ``torch.save`` wrote, read without running anything in them.

Such a file is a pickle: a small program, which may call any function. Here the program is read instruction
by instruction (`pickletools` takes it apart and never runs it) by a machine that knows containers, numbers,
text and tensors. The few names it understands are listed in `_Machine.build`; a call of any other is refused,
or, where a file holds such an object beside its weights, leaves an `Unknown` in its place.
"""

import io
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

from transduce.errors import ArtifactError

_MAGIC = 0x1950A86A20F9469CFC6C  # the first number of a file from before torch 1.6
_KINDS = {
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}
_REMEDY = "give a file that holds weights alone (a state dict), or convert it to safetensors"
_TOO_MANY = 1 << 40  # bytes of a tensor: what a broken file may ask for


class _RefusedError(Exception):
    """What the file wants is not done."""


class _Name(str):
    """A function or class that the file names; it is never looked up."""

    __slots__ = ()


@dataclass
class Unknown:
    """Stands for an object of another kind, which was not made."""

    name: str


class _Storage(NamedTuple):
    """Numbers in a row, of which tensors are views."""

    kind: torch.dtype
    key: str
    size: int  # numbers


def read_torch(path: str | Path, *, strict: bool = True) -> Any:
    """What ``torch.save`` put into this file, made of containers, numbers, text and tensors (on the CPU).

    An object of any other kind is refused in one line; without ``strict`` there is an `Unknown` instead.
    """
    path = Path(path).expanduser()
    with _reading(path), path.open("rb") as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return _read_zip(archive, strict)
        file.seek(0)
        return _read_legacy(file, strict)


def read_state(path: str | Path) -> dict[str, Tensor]:
    """A file's weights by name; it must hold nothing else."""
    found = read_torch(path)
    if not isinstance(found, dict) or not found or not all(isinstance(t, Tensor) for t in found.values()):
        raise ArtifactError(f"{path} holds no weights by name", _REMEDY)
    return {str(name): tensor for name, tensor in found.items()}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _RefusedError as error:
        raise ArtifactError(f"{path} {error}", _REMEDY) from None
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}", "check the path") from error
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
        # Whatever a torn or forged file makes go wrong on the way.
        raise ArtifactError(f"{path} is damaged, or no file of torch: {error}", "copy it again") from error


def _read_zip(archive: zipfile.ZipFile, strict: bool) -> Any:
    (program,) = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    root = program.removesuffix("data.pkl")
    if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
        raise _RefusedError("has its bytes in the order of another machine")
    rows: dict[str, Tensor] = {}

    def numbers(storage: _Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = _row(archive.read(f"{root}data/{storage.key}"), storage)
        return rows[storage.key]

    return _Machine(numbers, strict).run(io.BytesIO(archive.read(program)))


def _read_legacy(file: IO[bytes], strict: bool) -> Any:
    """Five programs, then the numbers of each storage; tensors are made before, and filled at the end."""
    rows: dict[str, Tensor] = {}

    def numbers(storage: _Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = torch.zeros(storage.size, dtype=storage.kind)
        return rows[storage.key]

    machine = _Machine(numbers, strict)
    magic = machine.run(file)
    if magic != _MAGIC:
        raise ValueError("it does not begin as one")
    _version, system = machine.run(file), machine.run(file)
    if not system.get("little_endian", True):
        raise _RefusedError("has its bytes in the order of another machine")
    found, keys = machine.run(file), machine.run(file)
    for key in keys:
        (size,) = struct.unpack("<q", file.read(8))
        row = rows[key]
        storage = _Storage(row.dtype, key, size)
        if size != len(row):
            raise ValueError(f"storage {key} has {size} numbers instead of {len(row)}")
        row.copy_(_row(file.read(size * row.element_size()), storage))
    return found


def _row(data: bytes, storage: _Storage) -> Tensor:
    if len(data) != storage.size * storage.kind.itemsize:
        raise ValueError(f"storage {storage.key} is {len(data)} bytes long")
    return torch.frombuffer(bytearray(data), dtype=storage.kind) if data else torch.empty(0)


def _tensor(numbers: Callable[[_Storage], Tensor], arguments: tuple[Any, ...]) -> Tensor:
    """(storage, offset, size, stride, …): a view, of which every number must exist."""
    storage, offset, size, stride = arguments[:4]
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if min((offset, *size, *stride)) < 0 or (prod(size) and last >= storage.size):
        raise ValueError("a tensor reaches beyond its numbers")
    if prod(size) * storage.kind.itemsize > _TOO_MANY:
        raise ValueError("a tensor is too large")
    return numbers(storage).as_strided(size, stride, offset)


def _pairs(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(arguments[0]) if arguments else {}


class _Machine:
    """Runs a pickle's program with nothing but data in its hands."""

    def __init__(self, numbers: Callable[[_Storage], Tensor], strict: bool) -> None:
        self.numbers, self.strict = numbers, strict
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, program: IO[bytes]) -> Any:
        """Up to its STOP; ``program`` is then behind it."""
        self.stack, self.marks, self.memo = [], [], {}
        for instruction, argument, _ in pickletools.genops(program):
            name = instruction.name
            if name == "STOP":
                return self.stack.pop()
            if name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _LITERALS:
                self.stack.append(argument)
            elif name in _ACTIONS:
                _ACTIONS[name](self, argument)
            elif name not in _NOTHING:
                raise _RefusedError(f"has an instruction {name}, which weights do not need")
        raise ValueError("it ends too soon")

    def since_mark(self) -> list[Any]:
        """What was put on the stack since the last mark, taken off it."""
        begin = self.marks.pop()
        taken, self.stack[begin:] = self.stack[begin:], []
        return taken

    def tuple_of(self, count: int) -> None:
        """The last so many, as one."""
        taken, self.stack[-count:] = tuple(self.stack[-count:]), []
        self.stack.append(taken)

    def call(self, _: Any) -> None:
        """REDUCE and NEWOBJ: a function's name and its arguments."""
        arguments, name = self.stack.pop(), self.stack.pop()
        self.stack.append(self.build(name, arguments))

    def build(self, name: Any, arguments: Any) -> Any:
        """The one place where something is made: containers and tensors, by this list."""
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise _RefusedError("calls what is no function")
        if name == "torch._utils _rebuild_tensor_v2":
            return _tensor(self.numbers, arguments)
        if name == "torch._utils _rebuild_parameter":
            return arguments[0]
        if name == "collections OrderedDict":
            return _pairs(arguments)
        if name == "argparse Namespace":
            return {}
        if self.strict:
            raise _RefusedError(f"wants to call {name.replace(' ', '.')}, which is no weight")
        return Unknown(name.replace(" ", "."))

    def set_state(self, _: Any) -> None:
        """BUILD: attributes. Those of a namespace are what it holds; those of other things are dropped."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], dict) and isinstance(state, dict) and not self.stack[-1]:
            self.stack[-1].update(state)

    def load_storage(self, _: Any) -> None:
        """BINPERSID: ("storage", kind, key, device, numbers, …)."""
        what, kind, key, _device, size = self.stack.pop()[:5]
        if what != "storage" or kind not in _KINDS or not isinstance(size, int) or size < 0:
            raise _RefusedError(f"has numbers of an unknown kind, {kind}")
        self.stack.append(_Storage(_KINDS[kind], str(key), size))

    def name(self, _: Any) -> None:
        """STACK_GLOBAL."""
        module, name = self.stack[-2:]
        self.stack[-2:] = [_Name(f"{module} {name}")]

    def append(self, items: list[Any]) -> None:
        """To the list below them."""
        if not isinstance(self.stack[-1], Unknown):
            self.stack[-1].extend(items)

    def set_items(self, flat: list[Any]) -> None:
        """Keys and values in turn, into the dictionary below them."""
        if not isinstance(self.stack[-1], Unknown):
            self.stack[-1].update(zip(flat[::2], flat[1::2], strict=True))

    def put(self, place: int) -> None:
        """Remember the top of the stack."""
        self.memo[place] = self.stack[-1]


_NOTHING = {"PROTO", "FRAME"}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_ACTIONS: dict[str, Callable[[_Machine, Any], Any]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.since_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items([m.stack.pop(), m.stack.pop()][::-1]),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "GLOBAL": lambda m, name: m.stack.append(_Name(name)),
    "STACK_GLOBAL": _Machine.name,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "BUILD": _Machine.set_state,
    "BINPERSID": _Machine.load_storage,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "GET": lambda m, place: m.stack.append(m.memo[place]),
    "BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "LONG_BINGET": lambda m, place: m.stack.append(m.memo[place]),
}
