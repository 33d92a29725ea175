"""Safetensors files that lie: about names, shapes, places or sizes of the tensors in them."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Header = list[tuple[str, Any]]  # pairs, because a name may occur twice


def read(path: Path) -> tuple[Header, bytes]:
    """Return the header and the data of a file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size], object_pairs_hook=_top_level), content[8 + size :]


def write(path: Path, header: Header, data: bytes) -> None:
    """Write a file without looking at what it says."""
    pairs = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in header)
    write_raw(path, f"{{{pairs}}}".encode(), data)


def write_raw(path: Path, header: bytes, data: bytes, size: int | None = None) -> None:
    path.write_bytes(struct.pack("<Q", len(header) if size is None else size) + header + data)


def _top_level(pairs: Header) -> Any:
    # Only the entries of tensors and the metadata are needed as dictionaries.
    return pairs if any(isinstance(value, dict) for _, value in pairs) else dict(pairs)


def _tensors(header: Header) -> list[tuple[str, dict[str, Any]]]:
    return [(name, entry) for name, entry in header if name != "__metadata__"]


def _with(header: Header, name: str, **fields: Any) -> Header:
    return [(other, {**entry, **fields} if other == name else entry) for other, entry in header]


def _matrix(header: Header) -> tuple[str, dict[str, Any]]:
    """Return the first matrix that is not square."""
    return next(
        (name, entry)
        for name, entry in _tensors(header)
        if len(entry["shape"]) == 2 and entry["shape"][0] != entry["shape"][1]
    )


def _alike(header: Header) -> tuple[str, str]:
    """Return the names of two tensors of one shape."""
    seen: dict[tuple[int, ...], str] = {}
    for name, entry in _tensors(header):
        if (other := seen.setdefault(tuple(entry["shape"]), name)) != name:
            return other, name
    raise AssertionError("no two tensors are alike")


def _twice(header: Header, data: bytes) -> tuple[Header, bytes]:
    name, entry = _matrix(header)
    return [*header, (name, entry)], data


def _twice_with_other_data(header: Header, data: bytes) -> tuple[Header, bytes]:
    name, entry = _matrix(header)
    begin, end = entry["data_offsets"]
    second = {**entry, "data_offsets": [len(data), len(data) + end - begin]}
    return [*header, (name, second)], data + bytes(end - begin)


def _turned(header: Header, data: bytes) -> tuple[Header, bytes]:
    name, entry = _matrix(header)
    return _with(header, name, shape=entry["shape"][::-1]), data


def _flat(header: Header, data: bytes) -> tuple[Header, bytes]:
    name, entry = _matrix(header)
    return _with(header, name, shape=[entry["shape"][0] * entry["shape"][1]]), data


def _overlapping(header: Header, data: bytes) -> tuple[Header, bytes]:
    first, second = _alike(header)
    return _with(header, second, data_offsets=dict(_tensors(header))[first]["data_offsets"]), data


def _beyond_the_end(header: Header, data: bytes) -> tuple[Header, bytes]:
    name, entry = _matrix(header)
    begin, end = entry["data_offsets"]
    return _with(header, name, data_offsets=[begin + len(data), end + len(data)]), data


def _backwards(header: Header, data: bytes) -> tuple[Header, bytes]:
    name, entry = _matrix(header)
    return _with(header, name, data_offsets=entry["data_offsets"][::-1]), data


def _huge_shape(header: Header, data: bytes) -> tuple[Header, bytes]:
    return _with(header, _matrix(header)[0], shape=[2**40, 2**40]), data


def _empty_shape(header: Header, data: bytes) -> tuple[Header, bytes]:
    return _with(header, _matrix(header)[0], shape=[0, 2**62]), data


def _negative_shape(header: Header, data: bytes) -> tuple[Header, bytes]:
    return _with(header, _matrix(header)[0], shape=[-1, -16]), data


def _other_type(header: Header, data: bytes) -> tuple[Header, bytes]:
    return _with(header, _matrix(header)[0], dtype="I32"), data


def _unknown_type(header: Header, data: bytes) -> tuple[Header, bytes]:
    return _with(header, _matrix(header)[0], dtype="\x1b[31mF32"), data


def _control_characters(header: Header, data: bytes) -> tuple[Header, bytes]:
    changed = _matrix(header)[0]
    return [(f"{name}\x1b[31m\n\x9b" if name == changed else name, entry) for name, entry in header], data


def _another_tensor(header: Header, data: bytes) -> tuple[Header, bytes]:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    return [*header, ("\x1b]0;title\x07", entry)], data + bytes(4)


def _missing_tensor(header: Header, data: bytes) -> tuple[Header, bytes]:
    gone = _matrix(header)[0]
    return [(name, entry) for name, entry in header if name != gone], data


def _more_data(header: Header, data: bytes) -> tuple[Header, bytes]:
    return header, data + bytes(64)


def _less_data(header: Header, data: bytes) -> tuple[Header, bytes]:
    return header, data[:-64]


def _metadata_of_numbers(header: Header, data: bytes) -> tuple[Header, bytes]:
    return [("__metadata__", {"transduce": 1}), *_tensors(header)], data


def _infinite(header: Header, data: bytes) -> tuple[Header, bytes]:
    begin = _matrix(header)[1]["data_offsets"][0]
    return header, data[:begin] + struct.pack("<f", float("inf")) + data[begin + 4 :]


LIES: dict[str, Callable[[Header, bytes], tuple[Header, bytes]]] = {
    lie.__name__.strip("_").replace("_", " "): lie
    for lie in (
        *(_twice, _twice_with_other_data, _turned, _flat, _overlapping, _beyond_the_end, _backwards),
        *(_huge_shape, _empty_shape, _negative_shape, _other_type, _unknown_type, _control_characters),
        *(_another_tensor, _missing_tensor, _more_data, _less_data, _metadata_of_numbers, _infinite),
    )
}
# Headers that are none, and the size that the file gives for them
HEADERS: dict[str, tuple[bytes, int | None]] = {
    "header of 2^63 bytes": (b"{}", 2**63),
    "header of a terabyte": (b"{}", 2**40),
    "header of 90 MB": (b"{}", 90_000_000),
    "header of one byte": (b"{", 1),
    "header of nothing": (b"", 0),
    "header is a list": (b"[]", None),
    "nested header": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, None),
    "header is not UTF-8": (b'{"\xff":1}', None),
    "header with control characters": (b'{"\\u001b[31m":{"dtype":"F32"}}', None),
}


def lie_about(path: Path, name: str) -> None:
    """Replace a file by one with this lie in it."""
    header, data = read(path)
    if name in LIES:
        write(path, *LIES[name](header, data))
    else:
        raw, size = HEADERS[name]
        write_raw(path, raw, data, size)
