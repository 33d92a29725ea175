"""SentencePiece model files: pieces with scores and types, and how the model segments and normalizes.

The file is a ``ModelProto`` in protobuf's wire format: fields of a number and a type, in any order. Fields
that only concern training are skipped.
"""

import math
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError, reason_of, remedy_for
from transduce.files import read_small

_MAX_FILE = 64_000_000  # bytes
_MAX_PIECE = 8000  # bytes, SentencePiece's own limit
REMEDY = "give the .model or .spm file of a SentencePiece model"
_UNKNOWN_SURFACE = " \u2047 "
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class PieceType(IntEnum):
    """What a piece is for; only normal and user-defined pieces are found in text."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class ModelType(IntEnum):
    """How a text is cut into pieces."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class Piece(NamedTuple):
    """A piece; its position in the file is its id."""

    text: str
    score: float
    type: PieceType


class TrainerSpec(NamedTuple):
    """What the trainer wrote down that concerns the use of the model."""

    model_type: ModelType = ModelType.UNIGRAM
    treat_whitespace_as_suffix: bool = False
    byte_fallback: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    unk_surface: str = _UNKNOWN_SURFACE


class NormalizerSpec(NamedTuple):
    """How a text is normalized before it is cut into pieces."""

    name: str = ""
    precompiled_charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


class SentencePieceModel(NamedTuple):
    """The contents of a SentencePiece model file."""

    pieces: tuple[Piece, ...]
    trainer: TrainerSpec
    normalizer: NormalizerSpec
    has_denormalizer: bool

    def texts(self, *types: PieceType) -> list[str]:
        """Return the pieces of these types, in the order of their ids."""
        return [piece.text for piece in self.pieces if piece.type in types]

    @property
    def unknown(self) -> int:
        """The id of the piece that stands for unknown characters."""
        return next(number for number, piece in enumerate(self.pieces) if piece.type == PieceType.UNKNOWN)


def read_model(path: str | Path) -> SentencePieceModel:
    """Read and check a SentencePiece model file."""
    path = Path(path)
    try:
        data = read_small(path, _MAX_FILE)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    try:
        model = _model(data)
        _check(model)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path} is not a SentencePiece model: {error}", REMEDY) from error
    return model


def _model(data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    # Of a message that is stored in parts, protobuf reads the concatenation.
    parts: dict[int, list[bytes]] = {2: [], 3: [], 5: []}
    for number, value in _fields(data):
        if number not in {1, *parts}:
            continue
        if not isinstance(value, bytes):
            raise ValueError(f"field {number} is not a message")
        if number == 1:
            pieces.append(_piece(value))
        else:
            parts[number].append(value)
    trainer, normalizer, denormalizer = (b"".join(part) for part in parts.values())
    has_denormalizer = bool(_normalizer(denormalizer).precompiled_charsmap)
    return SentencePieceModel(tuple(pieces), _trainer(trainer), _normalizer(normalizer), has_denormalizer)


def _piece(data: bytes) -> Piece:
    text, score, kind = "", 0.0, 1
    for number, value in _fields(data):
        match number, value:
            case 1, bytes():
                text = value.decode("utf-8")
            case 2, float():
                score = value
            case 3, int():
                kind = value
            case ((1 | 2 | 3), _):
                raise ValueError("a field of a piece has the wrong type")
    return Piece(text, score, PieceType(kind))


def _trainer(data: bytes) -> TrainerSpec:
    fields = dict(_fields(data))
    default = TrainerSpec()
    return TrainerSpec(
        model_type=ModelType(_integer(fields.get(3), default.model_type)),
        treat_whitespace_as_suffix=bool(_integer(fields.get(24), 0)),
        byte_fallback=bool(_integer(fields.get(35), 0)),
        unk_id=_integer(fields.get(40), default.unk_id),
        bos_id=_integer(fields.get(41), default.bos_id),
        eos_id=_integer(fields.get(42), default.eos_id),
        pad_id=_integer(fields.get(43), default.pad_id),
        unk_surface=_string(fields.get(44), default.unk_surface),
    )


def _normalizer(data: bytes) -> NormalizerSpec:
    fields = dict(_fields(data))
    charsmap = fields.get(2, b"")
    if not isinstance(charsmap, bytes):
        raise ValueError("its character map has the wrong type")
    return NormalizerSpec(
        name=_string(fields.get(1), ""),
        precompiled_charsmap=charsmap,
        add_dummy_prefix=bool(_integer(fields.get(3), 1)),
        remove_extra_whitespaces=bool(_integer(fields.get(4), 1)),
        escape_whitespaces=bool(_integer(fields.get(5), 1)),
    )


def _integer(value: int | float | bytes | None, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int):
        raise ValueError("a number in it has the wrong type")
    return value - (1 << 64) if value >> 63 else value  # negative numbers are stored in 64 bits


def _string(value: int | float | bytes | None, default: str) -> str:
    if value is None:
        return default
    if not isinstance(value, bytes):
        raise ValueError("a string in it has the wrong type")
    return value.decode("utf-8")


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the number and the value of each field of a message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = _varint(data, at) if kind == _BYTES else ({_FIXED64: 8, _FIXED32: 4}.get(kind, -1), at)
        if size < 0:
            raise ValueError(f"unknown field type {kind} at byte {at} of a message")
        if size > end - at:
            raise ValueError("it ends too early: is the file complete?")
        content, at = data[at : at + size], at + size
        yield number, struct.unpack("<f", content)[0] if kind == _FIXED32 else content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at this position, and the position after it."""
    if at < len(data) and data[at] < 0x80:  # most are that short
        return data[at], at + 1
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, at + index + 1
    raise ValueError("a number in it has no end: is the file complete?")


def _check(model: SentencePieceModel) -> None:
    """Raise a `ValueError` where SentencePiece itself would refuse the model, or could not be followed."""
    if not model.pieces:
        raise ValueError("it has no pieces")
    seen: set[str] = set()
    for number, (text, score, kind) in enumerate(model.pieces):
        if not text or "\0" in text or len(text.encode()) >= _MAX_PIECE:
            raise ValueError(f"piece {number} is empty, too long or contains a zero byte")
        if text in seen:
            raise ValueError(f"the piece {text!r} occurs twice")
        if not math.isfinite(score):
            raise ValueError(f"the score of the piece {text!r} is {score}")
        if kind == PieceType.BYTE and not model.trainer.byte_fallback:
            raise ValueError(f"it has the byte {text!r}, but byte_fallback is false")
        seen.add(text)
    if len(model.texts(PieceType.UNKNOWN)) != 1:
        raise ValueError("it needs exactly one piece for unknown characters")
    if model.trainer.byte_fallback:
        expected = {f"<0x{byte:02X}>" for byte in range(256)}
        if set(model.texts(PieceType.BYTE)) != expected:
            raise ValueError("byte_fallback is true, but its byte pieces are not <0x00> to <0xFF>")
