"""Files of ``torch.save`` that cost far more than their size, if they are believed."""

import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

_MAGIC = 0x1950A86A20F9469CFC6C
_EMPTY_TUPLE, _DICT, _MARK, _DUP, _NONE, _STOP = b")", b"}", b"(", b"2", b"N", b"."


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    data = pickle.encode_long(value)
    return b"\x8b" + struct.pack("<i", len(data)) + data


def numbers(*values: int) -> bytes:
    return _MARK + b"".join(map(number, values)) + b"t"


def name(module: str, attribute: str) -> bytes:
    return b"c" + f"{module}\n{attribute}\n".encode()


def storage(size: bytes, key: bytes = text("0"), kind: bytes = name("torch", "FloatStorage")) -> bytes:
    """Return a program that puts a storage on the stack."""
    return _MARK + text("storage") + kind + key + text("cpu") + size + b"tQ"


def tensor(of: bytes, size: bytes, stride: bytes, offset: bytes = number(0)) -> bytes:
    """Return a program that puts a tensor on the stack; size, stride and offset are programs, too."""
    arguments = of + offset + size + stride + b"\x89" + name("collections", "OrderedDict") + b")R"
    return name("torch._utils", "_rebuild_tensor_v2") + _MARK + arguments + b"tR"


def state(value: bytes) -> bytes:
    """Return a program that returns a state dict with one value."""
    return keyed(text("weight"), value)


def keyed(key: bytes, value: bytes = _NONE) -> bytes:
    """Return a program that returns a dict."""
    return b"\x80\x02" + _DICT + key + value + b"s" + _STOP


_FOUR = storage(number(4))
_VIEW = tensor(_FOUR, numbers(4), numbers(1))
# A tuple of two tuples of two tuples, and so on: small in memory, but endless to hash or print
_DOUBLING = _EMPTY_TUPLE + (_DUP + b"\x86") * 60
_DEEP = _EMPTY_TUPLE + b"\x85" * 400_000
_LONG = 1 << 4_000_000
PROGRAMS: dict[str, bytes] = {
    "tuples that double, as a key": keyed(_DOUBLING),
    "tuples that double, in a set": b"\x80\x04\x8f" + _MARK + _DOUBLING + b"\x90" + _STOP,
    "tuples that double, as the key of a storage": state(
        tensor(storage(number(4), _DOUBLING), numbers(4), numbers(1))
    ),
    "tuples that double, as a type": state(
        tensor(storage(number(4), kind=_DOUBLING), numbers(4), numbers(1))
    ),
    "tuples that double, as a function": state(_DOUBLING + b")R"),
    "tuples that double, as a name": state(text("torch") + _DOUBLING + b"\x93" + b")R"),
    "tuples that double, as a size": state(tensor(_FOUR, _DOUBLING, _DOUBLING)),
    "tuples that double, as an offset": state(tensor(_FOUR, numbers(4), numbers(1), _DOUBLING)),
    "tuples that double, as pairs": state(name("collections", "OrderedDict") + _DOUBLING + b"\x85R"),
    "deep tuple as a key": keyed(_DEEP),
    "deep tuple as the key of a storage": state(tensor(storage(number(4), _DEEP), numbers(4), numbers(1))),
    "stride 0, a terabyte": state(tensor(_FOUR, numbers(1 << 38), numbers(0))),
    "stride 0, many dimensions": state(tensor(_FOUR, numbers(*[1 << 9] * 4), numbers(*[0] * 4))),
    "size of many digits": state(tensor(storage(number(_LONG)), numbers(_LONG), numbers(1))),
    "sizes whose product has many digits": state(tensor(_FOUR, numbers(*[_LONG] * 50), numbers(*[0] * 50))),
    "offset of many digits": state(tensor(_FOUR, numbers(4), numbers(1), number(_LONG))),
    "negative size": state(tensor(storage(number(-4)), numbers(4), numbers(1))),
    "size that is a text": state(tensor(storage(text("4")), numbers(4), numbers(1))),
    "sizes that are texts": state(tensor(_FOUR, text("4") + b"\x85", text("1") + b"\x85")),
    "offset that is a text": state(tensor(_FOUR, numbers(4), numbers(1), text("0"))),
    "text of many digits": b"I" + b"9" * 10_000_000 + b"\n.",
    "long of many digits": b"L" + b"9" * 10_000_000 + b"L\n.",
    "text longer than the file": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "bytes longer than the file": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
    "text of 4 GB that is not there": b"X" + struct.pack("<I", (1 << 32) - 1) + b"x.",
    "place in the memo of many digits": b"Np" + b"9" * 5000 + b"\n.",
    "marks that are missing": b"t" * 100 + _STOP,
    "stack that is empty": _STOP,
    "a name that is code": state(name("os", "system") + text("true") + b"\x85R"),
    "a name with control characters": state(name("os\x1b[31m", "sys\x07tem") + b")R"),
    "a list in itself, as a key": keyed(b"]q\x00h\x00a"),
    "lists of lists, as a key": keyed(b"]q\x00" + (_MARK + b"h\x00" * 2 + b"e") * 1000),
}


def zip_file(path: Path, program: bytes, data: bytes = bytes(16), method: int = zipfile.ZIP_STORED) -> None:
    """Write a file as ``torch.save`` does: a zip archive with a program and the data of one storage."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", data)


def legacy_file(path: Path, program: bytes, size: int, data: bytes = bytes(16)) -> None:
    """Write a file as torch 1.5 did, whose one storage says that it has ``size`` elements."""
    parts = [pickle.dumps(part, 2) for part in (_MAGIC, 1001, {"little_endian": True})]
    path.write_bytes(b"".join(parts) + program + pickle.dumps(["0"], 2) + struct.pack("<q", size) + data)


def bomb(path: Path, entry: str, megabytes: int) -> None:
    """Write an archive whose ``entry`` has many megabytes of zeros, in a thousandth of the space."""
    block = bytes(1 << 20)
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)
    stream = first * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    program = state(tensor(storage(number(megabytes << 18)), numbers(megabytes << 18), numbers(1)))
    contents = {"archive/data.pkl": program, "archive/byteorder": b"little", "archive/data/0": bytes(16)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for other, content in contents.items():
            if other != entry:
                archive.writestr(other, content)
        archive.writestr(entry, stream)
        info = archive.getinfo(entry)  # stored so far; the directory at the end says that it is compressed
        info.compress_type, info.file_size, info.CRC = (
            zipfile.ZIP_DEFLATED,
            megabytes << 20,
            _crc(block, megabytes),
        )
    content = bytearray(file.getvalue())
    begin = info.header_offset
    content[begin + 8 : begin + 10] = struct.pack("<H", zipfile.ZIP_DEFLATED)
    path.write_bytes(content)


def _crc(block: bytes, count: int) -> int:
    value = 0
    for _ in range(count):
        value = zlib.crc32(block, value)
    return value


FILES: dict[str, Callable[[Path], None]] = {
    **{
        f"zip, {what}": lambda path, program=program: zip_file(path, program)
        for what, program in PROGRAMS.items()
    },
    **{
        f"legacy, {what}": lambda path, program=program: legacy_file(path, program, 4)
        for what, program in PROGRAMS.items()
    },
    "bomb of weights": lambda path: bomb(path, "archive/data/0", 1000),
    "bomb as the program": lambda path: bomb(path, "archive/data.pkl", 1000),
    "bomb as the byte order": lambda path: bomb(path, "archive/byteorder", 1000),
    "program of 12 MB that does nothing": lambda path: zip_file(path, b"N0" * 6_000_000 + b"N."),
    "program that never ends": lambda path: zip_file(path, b"N" * 12_000_000),
    "compressed": lambda path: zip_file(path, state(_VIEW), bytes(1 << 20), zipfile.ZIP_DEFLATED),
    "storage of a terabyte": lambda path: zip_file(
        path, state(tensor(storage(number(1 << 38)), numbers(4), numbers(1)))
    ),
    "legacy storage of a terabyte": lambda path: legacy_file(
        path, state(tensor(storage(number(1 << 38)), numbers(4), numbers(1))), 1 << 38
    ),
    "legacy storage that is shorter than it says": lambda path: legacy_file(
        path, state(tensor(storage(number(1 << 30)), numbers(4), numbers(1))), 1 << 30
    ),
    "legacy storage of another size": lambda path: legacy_file(path, state(_VIEW), 1 << 60),
    "legacy storage of a negative size": lambda path: legacy_file(path, state(_VIEW), -4),
    "cut off": lambda path: (zip_file(path, state(_VIEW)), path.write_bytes(path.read_bytes()[:-30])),
    "nothing": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(1 << 20)),
}


def valid_file(path: Path) -> None:
    """Write a file with one tensor, which must be read: what the others are made of is sound."""
    zip_file(path, state(_VIEW))


def valid_legacy_file(path: Path) -> None:
    """Write a file with one tensor as torch 1.5 did."""
    legacy_file(path, state(_VIEW), 4)
