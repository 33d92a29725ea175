"""Hostile input files: endless, enormous or broken texts, images and run files; hostile names of files."""

import gzip
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Content = bytes | Callable[[], bytes]
ESCAPES = "\x1b[31mred\x07 \x1b]0;title\x07 \x9b31m \x85 \x7f \x08\x08"
LINE = 1_000_000  # bytes: the longest line that commands read
TEXTS: Mapping[str, Content] = {
    "empty": b"",
    "blank": b"\n \n\t\n",
    "NUL": bytes(1_000_000),
    "1.1 MB": lambda: b"ab " * (11 * LINE // 30) + b"\n",
    "3 MB": lambda: b"a" * (3 * LINE) + b"\n",
    "3 MB without an end": lambda: b"a" * (3 * LINE),
    "3 MB of spaces": lambda: b" " * (3 * LINE) + b"\n",
    "3 MB of CR": lambda: b"\r" * (3 * LINE) + b"\n",
    "3 MB of tabs": lambda: b"a\t" * (LINE * 3 // 2) + b"\n",
    "3 MB in a column": lambda: b"a" * (3 * LINE) + b"\tb\n",
    "fine, then 3 MB": lambda: b"ab\tcd\n" * 40 + b"a" * (3 * LINE),
    "bomb": lambda: _gzip_of_zeros(400),
    "bomb of letters": lambda: gzip.compress(b"a" * 40_000_000, 1),
    "gzip cut off": lambda: gzip.compress(b"ab\tcd\n" * 40)[:-12],
    "gzip with garbage": lambda: gzip.compress(b"ab\tcd\n" * 40) + b"\x1f\x8bgarbage",
    "gzip of gzip": lambda: gzip.compress(gzip.compress(b"ab\tcd\n" * 40)),
    "Latin-1": b"ab\tcd\nh\xe9\tcd\n",
    "UTF-16": "ab\tcd\n".encode("utf-16"),
    "overlong UTF-8": b"ab\xc0\xaf\tcd\xed\xa0\x80\n",
    "escapes": f"ab {ESCAPES}\tcd {ESCAPES}\n".encode() * 40,
    "separators": "ab\u2028cd\x0b\x0c\x1c\x1d\x85\tcd\n".encode() * 40,
    "combining": ("a" + "\u0301" * 5000 + "\tb\n").encode() * 4,
}
JSON_LINES: Mapping[str, bytes] = {
    "nested": b"[" * 200_000 + b"\n",
    "nested in a field": b'{"source": ' + b"[" * 200_000 + b"]" * 200_000 + b', "target": "b"}\n',
    "lone surrogate": b'{"source": "\\ud800", "target": "b"}\n',
    "digits": b'{"source": ' + b"9" * 50_000 + b', "target": "b"}\n',
    "no texts": b'{"source": null, "target": {}}\n',
    "escapes": json.dumps({"\x1b[31m": "a", "source\x9b": "b"}).encode() + b"\n",
    "3 MB": json.dumps({"source": "a" * 3 * LINE, "target": "b"}).encode() + b"\n",
    "no object": b"1\n",
}
CSV: Mapping[str, bytes] = {
    "one quote": b'source,target\n"' + b"ab\n" * LINE,
    "NUL": b"source,target\na\0b,c\n",
    "escapes": f"{ESCAPES},target\nab,cd\n".encode().replace(b"\n,", b","),
    "3 MB": b"source,target\n" + b"a" * 3 * LINE + b",b\n",
    "columns": b"," * 200_000 + b"\n",
}
RUN_FILES: Mapping[str, bytes] = {
    "nested": b"a = " + b"[" * 200_000 + b"]" * 200_000 + b"\n",
    "nested tables": b"[" + b"a." * 300_000 + b"a]\n",
    "digits": b"[training]\nsteps = " + b"9" * 50_000 + b"\n",
    "NUL": bytes(1000),
    "Latin-1": b'[model]\nfamily = "\xe9"\n',
    "escapes": b'["\\u001b[31m"]\n"\\u009b" = 1\n',
    "escapes in a value": b'[model]\nfamily = "\\u001b[31mred\\n"\n',
    "a model that is a list": b"model = [1]\n",
    "a date": b"[training]\nsteps = 1979-05-27\n",
    "twice": b"[model]\n[model]\n",
    "half": b"[model\n",
    "letters of a date": b"[training]\nsteps = 07:32:00\n",
    "3 MB": b'[model]\nfamily = "' + b"a" * 3 * LINE + b'"\n',
}


def write_texts(folder: Path) -> None:
    """Write every text, file of pairs and run file."""
    for suffix, files in ((".tsv", TEXTS), (".jsonl", JSON_LINES), (".csv", CSV), (".toml", RUN_FILES)):
        _write({f"{name}{suffix}": content for name, content in files.items()}, folder)


def write_hostile_images(folder: Path) -> None:
    """Write images that claim too much, and collections of images that contradict themselves."""
    _write(IMAGES, folder)


def _write(files: Mapping[str, Content], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content() if callable(content) else content)


def _png(width: int, height: int) -> bytes:
    """Return a black image; the file of a large one is small."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes(min(height, 10_000) * (width // 8 + 1)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )


def _zip(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def _npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n"


def _npz(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _gzip_of_zeros(megabytes: int) -> bytes:
    """Return a gzip file of a thousandth of this size, without compressing all of it."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(megabytes):
        checksum = zlib.crc32(bytes(1 << 20), checksum)
    end = struct.pack("<II", checksum, (megabytes << 20) % 2**32)
    return b"\x1f\x8b\x08" + bytes(7) + block * megabytes + compressor.flush() + end


_PIXELS, _LABELS = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4) % 2
_SIZES = struct.pack(">III", 2**31, 2**31, 2**31)
_SOUND = _png(8, 8)
IMAGES: Mapping[str, Content] = {
    "bomb.png": lambda: _png(60_000, 60_000),
    "large.png": lambda: _png(12_000, 12_000),
    "width-0.png": _png(0, 8),
    "cut-off.png": _SOUND[:60],
    "half.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "escapes\x1b[31m\n.png": _SOUND[:60],
    "text.gif": b"GIF89a" + bytes(10),
    "bits.tiff": b"II*\x00\x08\x00\x00\x00\xff\xff" + b"\xff" * 2000,
    "zeros.bmp": bytes(1_000_000),
    "shape.npz": _zip(
        {"images.npy": _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (%s,), }" % ("9" * 30))}
    ),
    "nested.npz": _zip({"images.npy": _npy("(" * 5000 + ")" * 5000)}),
    "half-header.npz": _zip({"images.npy": _npy("{'descr': '|u1', 'shape': (")}),
    "pickle.npz": _npz(images=np.array([{}], dtype=object), labels=_LABELS),
    "escapes.npz": _npz(images=_PIXELS, labels=_LABELS, classes=np.array(["a\x1b[31m\n", "b\x9b"])),
    "label.npz": _npz(images=_PIXELS, labels=np.array([0, 1, 2**62, 0])),
    "classes.npz": _npz(images=_PIXELS, labels=_LABELS, classes=np.array(["a", "a"])),
    "nan.npz": _npz(images=_PIXELS * np.nan, labels=_LABELS),
    "no-zip.npz": b"PK\x03\x04" + bytes(100),
    "sizes-images-idx3-ubyte": b"\x00\x00\x08\x03" + _SIZES,
    "sizes-labels-idx1-ubyte": b"\x00\x00\x08\x01" + _SIZES[:4],
    "dimensions-images-idx3-ubyte": b"\x00\x00\x08\xff" + b"\x00\x00\x00\x01" * 255 + b"\x00",
    "bomb-images-idx3-ubyte.gz": lambda: _gzip_of_zeros(4000),
    **{f"photos/{name}/{n}.png": _SOUND for name in ("good", "bad\x1b[31m\n\x9b") for n in range(4)},
    os.fsdecode(b"unnamed/\xff\xfe/1.png"): _SOUND,
    "unnamed/good/1.png": _SOUND,
    "mixed/a/1.png": _SOUND,
    "mixed/b/2.png": _SOUND[:60],
    "one/a/1.png": _SOUND,
    "none/a/text": b"",
}
