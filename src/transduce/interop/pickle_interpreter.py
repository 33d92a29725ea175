"""An interpreter of pickle programs that creates only data.

A pickle is a program for a small stack machine, which may call any function. Here `pickletools` takes the
program apart without running it, and the interpreter executes the instructions that create containers,
numbers, strings and tensors. `Interpreter.build` lists the few functions it knows; a call of any other
function is refused or, if the caller wants that, replaced by an `Unknown`.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

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
_SIZE_LIMIT = 1 << 40  # bytes of a tensor: a damaged file may ask for any amount


class RefusedError(Exception):
    """Raised for an instruction that is not executed."""


class _Name(str):
    """The name of a function or class; it is never looked up."""

    __slots__ = ()


@dataclass
class Unknown:
    """A placeholder for an object of an unknown class, which was not created."""

    name: str


class Storage(NamedTuple):
    """A flat array, of which tensors are views."""

    dtype: torch.dtype
    key: str
    size: int  # in elements


def _tensor(data_of: Callable[[Storage], Tensor], arguments: tuple[Any, ...]) -> Tensor:
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


class Interpreter:
    """An interpreter of pickle programs that creates only data."""

    def __init__(self, data_of: Callable[[Storage], Tensor], strict: bool) -> None:
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
                raise RefusedError(f"has the instruction {name}, which weights do not need")
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
            raise RefusedError("calls an object that is not a function")
        if name == "torch._utils _rebuild_tensor_v2":
            return _tensor(self.data_of, arguments)
        if name == "torch._utils _rebuild_parameter":
            return arguments[0]
        if name == "collections OrderedDict":
            return _pairs(arguments)
        if name == "argparse Namespace":
            return {}
        if self.strict:
            raise RefusedError(f"calls {name.replace(' ', '.')}, which weights do not need")
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
            raise RefusedError(f"has numbers of an unknown type, {kind}")
        self.stack.append(Storage(_TYPES[kind], str(key), size))

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
_ACTIONS: dict[str, Callable[[Interpreter, Any], Any]] = {
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
    "STACK_GLOBAL": Interpreter.name,
    "REDUCE": Interpreter.call,
    "NEWOBJ": Interpreter.call,
    "BUILD": Interpreter.set_state,
    "BINPERSID": Interpreter.load_storage,
    "PUT": Interpreter.put,
    "BINPUT": Interpreter.put,
    "LONG_BINPUT": Interpreter.put,
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "GET": lambda m, place: m.stack.append(m.memo[place]),
    "BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "LONG_BINGET": lambda m, place: m.stack.append(m.memo[place]),
}
