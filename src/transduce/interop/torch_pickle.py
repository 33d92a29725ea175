"""Read files written by ``torch.save`` without executing any code in them.

Such a file is a pickle: a program for a small stack machine, which may call any function. Here `pickletools`
takes the program apart without running it, and an interpreter of our own executes instructions that create
containers, numbers, strings and tensors. `_Interpreter.build` lists the few functions it knows; a call of any
other function is refused or, if the caller wants that, replaced by an `Unknown`.
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

_MAGIC = 0x1950A86A20F9469CFC6C  # the first number in files of torch 1.5 and earlier
_TYPES = {
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
_REMEDY = "give a file that contains only weights (a state dict), or convert it to safetensors"
_SIZE_LIMIT = 1 << 40  # bytes of a tensor: a damaged file may ask for any amount


class _RefusedError(Exception):
    """Raised for an instruction that is not executed."""


class _Name(str):
    """The name of a function or class; it is never looked up."""

    __slots__ = ()


@dataclass
class Unknown:
    """A placeholder for an object of an unknown class, which was not created."""

    name: str


class _Storage(NamedTuple):
    """A flat array, of which tensors are views."""

    dtype: torch.dtype
    key: str
    size: int  # in elements


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
    except _RefusedError as error:
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
        raise _RefusedError("has big-endian numbers, which are not supported")
    rows: dict[str, Tensor] = {}

    def data_of(storage: _Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = _row(archive.read(f"{root}data/{storage.key}"), storage)
        return rows[storage.key]

    return _Interpreter(data_of, strict).run(io.BytesIO(archive.read(program)))


def _read_legacy(file: IO[bytes], strict: bool) -> Any:
    """Read five programs and then the data of each storage; tensors are created first and filled last."""
    rows: dict[str, Tensor] = {}

    def data_of(storage: _Storage) -> Tensor:
        if storage.key not in rows:
            rows[storage.key] = torch.zeros(storage.size, dtype=storage.dtype)
        return rows[storage.key]

    interpreter = _Interpreter(data_of, strict)
    magic = interpreter.run(file)
    if magic != _MAGIC:
        raise ValueError("it does not begin with torch's magic number")
    _version, system = interpreter.run(file), interpreter.run(file)
    if not system.get("little_endian", True):
        raise _RefusedError("has big-endian numbers, which are not supported")
    content, keys = interpreter.run(file), interpreter.run(file)
    for key in keys:
        (size,) = struct.unpack("<q", file.read(8))
        row = rows[key]
        storage = _Storage(row.dtype, key, size)
        if size != len(row):
            raise ValueError(f"storage {key} has {size} elements instead of {len(row)}")
        row.copy_(_row(file.read(size * row.element_size()), storage))
    return content


def _row(data: bytes, storage: _Storage) -> Tensor:
    if len(data) != storage.size * storage.dtype.itemsize:
        raise ValueError(f"storage {storage.key} has {len(data)} bytes")
    return torch.frombuffer(bytearray(data), dtype=storage.dtype) if data else torch.empty(0)


def _tensor(data_of: Callable[[_Storage], Tensor], arguments: tuple[Any, ...]) -> Tensor:
    """Return a view of a storage; the arguments are (storage, offset, size, stride, …)."""
    storage, offset, size, stride = arguments[:4]
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if min((offset, *size, *stride)) < 0 or (prod(size) and last >= storage.size):
        raise ValueError("a tensor reaches beyond its storage")
    if prod(size) * storage.dtype.itemsize > _SIZE_LIMIT:
        raise ValueError("a tensor is too large")
    return data_of(storage).as_strided(size, stride, offset)


def _pairs(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(arguments[0]) if arguments else {}


class _Interpreter:
    """An interpreter of pickle programs that creates only data."""

    def __init__(self, data_of: Callable[[_Storage], Tensor], strict: bool) -> None:
        self.data_of, self.strict = data_of, strict
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, program: IO[bytes]) -> Any:
        """Run a program up to its STOP instruction, and leave the file behind it."""
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
            elif name not in _IGNORED:
                raise _RefusedError(f"has the instruction {name}, which weights do not need")
        raise ValueError("it is truncated")

    def since_mark(self) -> list[Any]:
        """Take everything above the last mark from the stack."""
        begin = self.marks.pop()
        taken, self.stack[begin:] = self.stack[begin:], []
        return taken

    def tuple_of(self, count: int) -> None:
        """Replace the last ``count`` objects on the stack by a tuple of them."""
        taken, self.stack[-count:] = tuple(self.stack[-count:]), []
        self.stack.append(taken)

    def call(self, _: Any) -> None:
        """Execute REDUCE or NEWOBJ: a call, with a function's name and its arguments on the stack."""
        arguments, name = self.stack.pop(), self.stack.pop()
        self.stack.append(self.build(name, arguments))

    def build(self, name: Any, arguments: Any) -> Any:
        """Create an object: this is the complete list of functions that a file may call."""
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise _RefusedError("calls an object that is not a function")
        if name == "torch._utils _rebuild_tensor_v2":
            return _tensor(self.data_of, arguments)
        if name == "torch._utils _rebuild_parameter":
            return arguments[0]
        if name == "collections OrderedDict":
            return _pairs(arguments)
        if name == "argparse Namespace":
            return {}
        if self.strict:
            raise _RefusedError(f"calls {name.replace(' ', '.')}, which weights do not need")
        return Unknown(name.replace(" ", "."))

    def set_state(self, _: Any) -> None:
        """Execute BUILD, which sets attributes: keep those of a namespace, and drop all others."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], dict) and isinstance(state, dict) and not self.stack[-1]:
            self.stack[-1].update(state)

    def load_storage(self, _: Any) -> None:
        """Execute BINPERSID, whose argument is ("storage", type, key, device, size, …)."""
        what, kind, key, _device, size = self.stack.pop()[:5]
        if what != "storage" or kind not in _TYPES or not isinstance(size, int) or size < 0:
            raise _RefusedError(f"has numbers of an unknown type, {kind}")
        self.stack.append(_Storage(_TYPES[kind], str(key), size))

    def name(self, _: Any) -> None:
        """Execute STACK_GLOBAL: replace a module and a name by one name."""
        module, name = self.stack[-2:]
        self.stack[-2:] = [_Name(f"{module} {name}")]

    def append(self, items: list[Any]) -> None:
        """Append items to the list on top of the stack."""
        if not isinstance(self.stack[-1], Unknown):
            self.stack[-1].extend(items)

    def set_items(self, flat: list[Any]) -> None:
        """Add alternating keys and values to the dictionary on top of the stack."""
        if not isinstance(self.stack[-1], Unknown):
            self.stack[-1].update(zip(flat[::2], flat[1::2], strict=True))

    def put(self, place: int) -> None:
        """Store the top of the stack in the memo."""
        self.memo[place] = self.stack[-1]


_IGNORED = {"PROTO", "FRAME"}
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
_ACTIONS: dict[str, Callable[[_Interpreter, Any], Any]] = {
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
    "STACK_GLOBAL": _Interpreter.name,
    "REDUCE": _Interpreter.call,
    "NEWOBJ": _Interpreter.call,
    "BUILD": _Interpreter.set_state,
    "BINPERSID": _Interpreter.load_storage,
    "PUT": _Interpreter.put,
    "BINPUT": _Interpreter.put,
    "LONG_BINPUT": _Interpreter.put,
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "GET": lambda m, place: m.stack.append(m.memo[place]),
    "BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "LONG_BINGET": lambda m, place: m.stack.append(m.memo[place]),
}
