"""An interpreter of pickle programs that creates only data.

A pickle is a program for a small stack machine, which may call any function. Here `pickletools` takes the
program apart without running it, and the interpreter executes the instructions that create containers,
numbers, strings and tensors. `Interpreter.build` lists the few functions it knows; a call of any other
function is refused or, if the caller wants that, replaced by an `Unknown`.

A program may refer to one object many times, so that a short one can describe a value of any size: a tuple of
two tuples of two tuples … . Therefore nothing here hashes, compares or prints a value whose kind was not
checked, whatever is copied is counted, and the work for one file is limited.
"""

import pickletools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import IO, Any, NamedTuple, cast

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
MAX_PROGRAM = 1 << 27  # bytes; a model's weights need about 200 for each tensor
# A limit of time and memory, a few seconds and some hundred megabytes, counted in short instructions. A
# vocabulary of a million words takes 3 million.
MAX_WORK = 5_000_000
_WORK_PER_CONTAINER, _WORK_PER_TENSOR = 4, 50
_LONGEST_LINE, _LONGEST_NAME, _LONGEST_KEY = 4096, 200, 100
_MAX_BITS = 512  # of an integer; states of random generators have 128
_MAX_INTEGER_KEY = 1 << 60  # the hashes of larger integers repeat, and equal hashes make a dictionary slow
_MAX_DIMENSIONS = 64
# How much larger than its storage a tensor may be: one that was expanded repeats its elements.
_MAX_EXPANSION, _SMALL_TENSOR = 16, 1 << 20  # of elements


class RefusedError(Exception):
    """Raised for an instruction that is not executed."""


class _Name(str):
    """The name of a function or class; it is never looked up."""

    __slots__ = ()


@dataclass
class Unknown:
    """An inert record in place of an object of an unknown class, which was not created."""

    name: str
    # What the file sets as its attributes; may contain itself, so it is neither printed nor compared.
    attributes: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


class Storage(NamedTuple):
    """A flat array, of which tensors are views."""

    dtype: torch.dtype
    key: str
    size: int  # in elements


class _Program:
    """The bytes of a program up to a limit: a forged length may ask for any amount."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, MAX_PROGRAM

    def read(self, count: int) -> bytes:
        """Return the next bytes."""
        self._left -= count
        if self._left < 0:
            raise RefusedError(f"has more than {MAX_PROGRAM:,} bytes apart from its numbers")
        return self._file.read(count)

    def readline(self) -> bytes:
        """Return the next line, which is a name or a number."""
        line = self._file.readline(_LONGEST_LINE)
        if len(line) == _LONGEST_LINE:
            raise RefusedError("has a name or number that is too long")
        return line


def _instructions(program: IO[bytes]) -> Iterator[tuple[pickletools.OpcodeInfo, Any]]:
    """Yield the instructions of a program and their arguments."""
    try:
        for instruction, argument, _ in pickletools.genops(cast("IO[bytes]", _Program(program))):
            yield instruction, argument
    except ValueError as error:  # in terms of opcodes and codecs
        raise ValueError("it is no pickle, or breaks off") from error


def storage_key(key: object) -> str:
    """Return the name of a storage, which is a short text or a number."""
    if not isinstance(key, str | int) or len(text := str(key)) > _LONGEST_KEY:
        raise RefusedError("has a storage whose name is neither a short text nor a number")
    return text


def _checked_key(key: Any) -> Any:
    """Return a key of a dictionary that can be hashed at once; refuse all others."""
    if isinstance(key, int) and abs(key) >= _MAX_INTEGER_KEY:
        raise RefusedError("has a dictionary with an integer key that is too large")
    if key is not None and not isinstance(key, str | int | float | bytes):
        raise RefusedError("has a dictionary whose keys are not texts or numbers")
    return key


class Interpreter:
    """An interpreter of pickle programs that creates only data.

    Unless ``strict``, objects of unknown classes become an `Unknown`: of all classes, or of those in
    ``packages``. ``tensor_bytes`` limits the sum of the sizes of all tensors, which may be views of the same
    data.
    """

    def __init__(
        self,
        data_of: Callable[[Storage], Tensor],
        strict: bool,
        *,
        tensor_bytes: int,
        packages: Collection[str] | None = None,
    ) -> None:
        self.data_of, self.strict, self.packages = data_of, strict, packages
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.work = 0  # done so far, in short instructions
        self._tensor_bytes_left = tensor_bytes

    def run(self, program: IO[bytes]) -> Any:
        """Run a program up to its STOP instruction, and leave the file behind it."""
        self.stack, self.marks, self.memo = [], [], {}
        for instruction, argument in _instructions(program):
            name = instruction.name
            self.spend(_WORK.get(name, 1))
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

    def spend(self, work: int) -> None:
        """Count work, and refuse the file once it is too much."""
        self.work += work
        if self.work > MAX_WORK:
            raise RefusedError("is not a file of weights: it has too many objects")

    def since_mark(self) -> list[Any]:
        """Take everything above the last mark from the stack."""
        begin = self.marks.pop()
        taken, self.stack[begin:] = self.stack[begin:], []
        return taken

    def tuple_of(self, count: int) -> None:
        """Replace the last ``count`` objects on the stack by a tuple of them."""
        taken, self.stack[-count:] = tuple(self.stack[-count:]), []
        self.stack.append(taken)

    def integer(self, value: int) -> None:
        """Execute the instructions for integers of any length."""
        if value.bit_length() > _MAX_BITS:
            raise RefusedError(f"has an integer of more than {_MAX_BITS} bits")
        self.stack.append(value)

    def call(self, _: Any) -> None:
        """Execute REDUCE or NEWOBJ: a call, with a function's name and its arguments on the stack."""
        arguments, name = self.stack.pop(), self.stack.pop()
        self.stack.append(self.build(name, arguments))

    def build(self, name: Any, arguments: Any) -> Any:
        """Create an object: this is the complete list of functions that a file may call."""
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise RefusedError("calls an object that is not a function")
        if name == "torch._utils _rebuild_tensor_v2":
            return self.tensor(arguments)
        if name == "torch._utils _rebuild_parameter":
            return arguments[0]
        if name == "collections OrderedDict":
            return self.dictionary(arguments)
        if name == "argparse Namespace":
            return {}
        if self.strict or not self._is_record(name):
            raise RefusedError(f"calls {name.replace(' ', '.')}, which weights do not need")
        return Unknown(name.replace(" ", "."))

    def _is_record(self, name: str) -> bool:
        """Return whether a class or function may stand for a record: its package, or itself, is listed."""
        return self.packages is None or name in self.packages or re.split(r"[. ]", name)[0] in self.packages

    def tensor(self, arguments: tuple[Any, ...]) -> Tensor:
        """Return a view of a storage; the arguments are (storage, offset, size, stride, …)."""
        self.spend(_WORK_PER_TENSOR)
        storage, offset, size, stride = arguments[:4]
        if not isinstance(storage, Storage) or not all(isinstance(n, tuple | list) for n in (size, stride)):
            raise ValueError("a tensor has no storage or shape")
        if len(size) > _MAX_DIMENSIONS or len(size) != len(stride):
            raise ValueError("a tensor has too many dimensions, or no stride for some")
        if not all(isinstance(number, int) for number in (offset, *size, *stride)):
            raise ValueError("a tensor has a shape that is not of integers")
        elements = prod(size)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if min((offset, *size, *stride)) < 0 or (elements and last >= storage.size):
            raise ValueError("a tensor reaches beyond its storage")
        self._tensor_bytes_left -= elements * storage.dtype.itemsize
        if elements > max(_SMALL_TENSOR, _MAX_EXPANSION * storage.size) or self._tensor_bytes_left < 0:
            raise RefusedError("has tensors that are far larger than the numbers in it")
        return self.data_of(storage).as_strided(size, stride, offset)

    def dictionary(self, arguments: tuple[Any, ...]) -> dict[Any, Any]:
        """Return a new dictionary; the arguments are empty, or have a list of keys and values."""
        content: Any = arguments[0] if arguments else []
        if not isinstance(content, dict | list | tuple):
            raise ValueError("a dictionary is made from something else than keys and values")
        self.spend(_WORK_PER_CONTAINER * len(content))
        items = content.items() if isinstance(content, dict) else content
        return {_checked_key(key): value for key, value in items}

    def set_state(self, _: Any) -> None:
        """Execute BUILD, which sets attributes: keep those of a namespace or record, and drop all others."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], Unknown) and isinstance(state, dict):
            self.stack[-1].attributes = state
        if isinstance(self.stack[-1], dict) and isinstance(state, dict) and not self.stack[-1]:
            self.spend(_WORK_PER_CONTAINER * len(state))
            self.stack[-1].update(state)

    def load_storage(self, _: Any) -> None:
        """Execute BINPERSID, whose argument is ("storage", type, key, device, size, …)."""
        description = self.stack.pop()
        if not isinstance(description, tuple):
            raise RefusedError("refers to objects that are not in the file")
        what, kind, key, _device, size = description[:5]
        if not isinstance(what, str) or what != "storage" or not isinstance(kind, str):
            raise RefusedError("refers to objects that are not in the file")
        if kind not in _TYPES or not isinstance(size, int) or size < 0:
            raise RefusedError(f"has numbers of an unknown type, {kind[:_LONGEST_NAME]}")
        self.stack.append(Storage(_TYPES[kind], storage_key(key), size))

    def name(self, module: Any, name: Any) -> None:
        """Put the name of a function or class on the stack."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise RefusedError("has a function whose name is not a text")
        if len(module) + len(name) > _LONGEST_NAME:
            raise RefusedError("has a function whose name is too long")
        self.spend(len(module) + len(name))
        self.stack.append(_Name(f"{module} {name}"))

    def append(self, items: list[Any]) -> None:
        """Append items to the list on top of the stack."""
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)
        elif not isinstance(self.stack[-1], Unknown):
            raise ValueError("it appends to something that is not a list")

    def set_items(self, flat: list[Any]) -> None:
        """Add alternating keys and values to the dictionary on top of the stack."""
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(zip(map(_checked_key, flat[::2]), flat[1::2], strict=True))
        elif not isinstance(self.stack[-1], Unknown):
            raise ValueError("it sets items of something that is not a dictionary")

    def put(self, place: int) -> None:
        """Store the top of the stack in the memo."""
        self.memo[_checked_key(place)] = self.stack[-1]


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
    *("BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"),
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
    "INT": Interpreter.integer,
    "LONG": Interpreter.integer,
    "LONG1": Interpreter.integer,
    "LONG4": Interpreter.integer,
    "GLOBAL": lambda m, name: m.name(*name.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.name(*[m.stack.pop(), m.stack.pop()][::-1]),
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
_CONTAINERS = {
    "EMPTY_DICT",
    "EMPTY_LIST",
    "EMPTY_SET",
    "LIST",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "REDUCE",
}
_WORK = dict.fromkeys(_CONTAINERS, _WORK_PER_CONTAINER)
