"""Write a tokenizer that was read from a SentencePiece model as such a file again.

The new file is read back, and refused unless it gives the same tokenizer.
"""

import base64
import json
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.sentencepiece_file import ModelType, PieceType
from transduce.data.sentencepiece_normalizer import SPACE
from transduce.errors import DataError

_LITERAL = re.compile(r"\\x\{([0-9a-f]+)\}")
_SPECIAL = (r"\A(?:", r")\z")  # around the regular expression of control symbols
_PARTS = {
    "model": "vocabulary",
    "normalizer": "normalizer",
    "pre_tokenizer": "pre-tokenizer",
    "decoder": "decoder",
}


def write_sentencepiece(backend: Tokenizer, path: Path) -> None:
    """Write the model of a tokenizer that `read_sentencepiece` made; added tokens are left out.

    Other tokenizers are refused; the error names what a SentencePiece model cannot hold.
    """
    state = json.loads(backend.to_str())
    kind = state["model"].get("type")
    if kind not in ("Unigram", "BPE"):
        raise _refusal(f"its kind is {kind}, not unigram or BPE")
    try:
        data, special = _serialized(state)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration) as error:
        raise _refusal("its steps are not those of SentencePiece") from error
    path.write_bytes(data)
    try:
        again = json.loads(read_sentencepiece(path).to_str())
    except DataError as error:
        path.unlink()
        raise _refusal(str(error)) from error
    for part, name in _PARTS.items():
        if _comparable(again[part], special) != _comparable(state[part], special):
            path.unlink()
            raise _refusal(f"its {name} is not one that SentencePiece has")


def _comparable(part: Any, special: set[str]) -> Any:
    """Return a part without what has no effect.

    Scores are in 32 bits, because the library reads the decimals of a file with a small error. No text has
    special pieces, whose scores only must not be the lowest of all.
    """
    if not isinstance(part, dict) or part.get("type") != "Unigram":
        return part
    scores = [(text, struct.pack("<f", score)) for text, score in part["vocab"]]
    ordinary = [(text, None if text in special else score) for text, score in scores]
    return {**part, "vocab": ordinary, "lowest": struct.pack("<f", min(score for _, score in part["vocab"]))}


def _refusal(reason: str) -> DataError:
    return DataError(
        f"the tokenizer cannot be written as a SentencePiece model: {reason}",
        "use another format for the export",
    )


def _serialized(state: dict[str, Any]) -> tuple[bytes, set[str]]:
    """Return the content of the file, and the pieces that are special there."""
    model, decoder = state["model"], list(_steps(state["decoder"]))
    surface = decoder[0]["content"]
    controls = {text for step in decoder for text in _controls(step)}
    unigram = model["type"] == "Unigram"
    scored = [(text, score) for text, score in model["vocab"]] if unigram else _bpe_scores(model)
    unknown = model["unk_id"] if unigram else model["vocab"][model["unk_token"]]
    fallback = bool(model["byte_fallback"])
    ids, pieces, special = {}, [], set()
    for number, (text, score) in enumerate(scored):
        kind = PieceType.CONTROL if text in controls else PieceType.NORMAL
        kind = PieceType.BYTE if fallback and re.fullmatch(r"<0x[0-9A-F]{2}>", text) else kind
        kind = PieceType.UNKNOWN if number == unknown else kind
        stored = score if kind == PieceType.NORMAL else 0.0
        if kind in (PieceType.CONTROL, PieceType.UNKNOWN):
            special.add(text)
        pieces.append(_bytes(1, _bytes(1, text.encode()) + _float(2, stored) + _integer(3, kind)))
        ids[text] = number
    trainer = _integer(3, ModelType.UNIGRAM if unigram else ModelType.BPE) + _integer(35, fallback)
    trainer += _integer(40, unknown)
    for field, name in ((41, "<s>"), (42, "</s>"), (43, "<pad>")):
        trainer += _integer(field, ids[name] if name in controls else -1)
    trainer += _bytes(44, surface.encode()) + _bytes(45, scored[unknown][0].encode())
    data = b"".join((*pieces, _bytes(2, trainer), _bytes(3, _normalizer(state["normalizer"]))))
    return data, special


def _normalizer(state: dict[str, Any] | None) -> bytes:
    steps = list(_steps(state))
    maps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    spaces = [step for step in steps if step["type"] == "Replace" and step["pattern"] == {"String": " "}]
    doubled = any(
        step["type"] == "Replace" and str(step["pattern"].get("Regex", "")).startswith(r"\A +|")
        for step in steps
    )
    data = _bytes(1, b"custom")
    data += _bytes(2, base64.b64decode(maps[0])) if maps else b""
    data += _integer(3, any(step["type"] == "Prepend" for step in steps)) + _integer(4, doubled)
    return data + _integer(5, any(step["content"] == SPACE for step in spaces))


def _bpe_scores(model: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the pieces in the order of their ids, with scores that order the merges."""
    ranks: dict[str, int] = {}
    for first, second in (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]):
        ranks.setdefault(first + second, len(ranks))
    ordered = sorted(model["vocab"].items(), key=lambda item: item[1])
    return [(text, -float(ranks.get(text, len(ranks)))) for text, _ in ordered]


def _steps(state: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or decoder, which may be nested."""
    if state is None:
        return
    inner: Iterable[dict[str, Any]] = state.get("normalizers") or state.get("decoders") or ()
    if state["type"] == "Sequence":
        for each in inner:
            yield from _steps(each)
    else:
        yield state


def _controls(step: dict[str, Any]) -> list[str]:
    """Return the control symbols that a step of the decoder removes."""
    expression = step.get("pattern", {}).get("Regex", "") if step["type"] == "Replace" else ""
    begin, end = _SPECIAL
    if step.get("content") != "" or not (expression.startswith(begin) and expression.endswith(end)):
        return []
    inside = expression[len(begin) : -len(end)]
    return ["".join(chr(int(code, 16)) for code in _LITERAL.findall(text)) for text in inside.split("|")]


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
