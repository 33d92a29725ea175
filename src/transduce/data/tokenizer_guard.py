"""Calls of the ``tokenizers`` library that a foreign tokenizer cannot turn into a crash.

A ``tokenizer.json`` contains regular expressions, templates and lengths that the library does not check.
Where they do not fit a text, it panics: it prints several lines on standard error and raises an exception
that is no `Exception`. `guarded` makes a `DataError` of that, which names the file.
"""

import base64
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from math import prod
from threading import RLock
from typing import Any

from tokenizers import Regex, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend

from transduce.data.normalization import form_of
from transduce.errors import DataError

# How many times longer a tokenizer may make a text. The factors of successive steps multiply.
_MAX_GROWTH = 1 << 16
_MAY_BE_EMPTY = re.compile(r"[*?^$|(]|\{[0,]|\\[bBAzZGK]|^$")  # a regular expression that may match nothing
_LONGEST_REASON = 200  # characters
_STANDARD_ERROR = 2
_ONE_AT_A_TIME = RLock()  # while standard error leads elsewhere

if hasattr(os, "register_at_fork"):
    # A process that is forked in between would write its errors to where nobody reads them.
    os.register_at_fork(
        before=_ONE_AT_A_TIME.acquire,
        after_in_parent=_ONE_AT_A_TIME.release,
        after_in_child=_ONE_AT_A_TIME.release,
    )


@contextmanager
def guarded(name: str, failure: str, *, muted: bool, remedy: str = "use another tokenizer") -> Iterator[None]:
    """Turn panics and errors of the library into a `DataError`: ``name`` (a file), ``failure``, and why.

    With ``muted``, what the library prints in a panic is dropped. Errors in arguments, which have types of
    their own, are passed on.
    """
    try:
        with _without_panic_messages() if muted else nullcontext():
            yield
    except BaseException as error:
        if not _is_panic(error) and type(error) is not Exception:
            raise
        raise DataError(f"{name} {failure}: {str(error)[:_LONGEST_REASON]}", remedy) from error


def _is_panic(error: BaseException) -> bool:
    """Return whether Rust code panicked; the class has no public name that could be imported."""
    return type(error).__name__ == "PanicException"


@contextmanager
def _without_panic_messages() -> Iterator[None]:
    """Hold standard error back, and drop it after a panic; else pass on what was written meanwhile.

    Rust writes to the file descriptor, so that this is what has to lead elsewhere: for the whole process, but
    for one thread at a time. A program that another thread starts meanwhile, without a fork, inherits it.
    """
    with _ONE_AT_A_TIME:
        files = _real_and_scratch_file()
        if files is None:
            yield
            return
        (real, held), panicked = files, False
        try:
            os.dup2(held, _STANDARD_ERROR)
            yield
        except BaseException as error:
            panicked = _is_panic(error)
            raise
        finally:
            os.dup2(real, _STANDARD_ERROR)
            os.close(real)
            if not panicked:
                _pass_on(held)
            os.close(held)


def _real_and_scratch_file() -> tuple[int, int] | None:
    """Return a copy of standard error and a new file; ``None`` if it is closed, or no more can be opened."""
    try:
        real = os.dup(_STANDARD_ERROR)
    except OSError:
        return None
    try:
        return real, _scratch_file()
    except OSError:
        os.close(real)
        return None


def _scratch_file() -> int:
    """Return the descriptor of a new file without a name; in memory on Linux."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _pass_on(held: int) -> None:
    """Write to standard error what was held back."""
    if not os.lseek(held, 0, os.SEEK_END):
        return
    os.lseek(held, 0, os.SEEK_SET)
    with suppress(OSError):  # such as a pipe whose reader has gone
        while block := os.read(held, 1 << 16):
            while block:
                block = block[os.write(_STANDARD_ERROR, block) :]


def is_known(backend: Backend) -> bool:
    """Return whether all steps of a tokenizer are such as our own training makes: these never panic."""
    normalizer, post_processor = _state(backend.normalizer), _state(backend.post_processor)
    steps = _state(backend.pre_tokenizer), _state(backend.decoder)
    if isinstance(normalizer, dict) and normalizer["type"] == "BertNormalizer":
        types = [isinstance(step, dict) and step["type"] for step in (*steps, post_processor)]
        return types == ["BertPreTokenizer", "WordPiece", "BertProcessing"]
    return form_of(backend.normalizer) is not None and post_processor is None and steps in _KNOWN_STEPS


def check_character_maps(text: str, name: str) -> None:
    """Refuse a ``tokenizer.json`` whose character map states a size that it does not have.

    The library would allocate that much memory and end the process.
    """
    try:
        normalizer = json.loads(text)["normalizer"]
        maps = list(_character_maps(normalizer))
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # the library reports what is wrong
    for characters in maps:
        if len(characters) < 4 or int.from_bytes(characters[:4], "little") > len(characters) - 4:
            raise DataError(f"{name} has a damaged precompiled_charsmap", "use another tokenizer")


def _character_maps(step: Any) -> Iterator[bytes]:
    """Yield the character maps of a normalizer: the size of a table, the table, and texts."""
    if isinstance(step, dict):
        if isinstance(step.get("precompiled_charsmap"), str):
            yield base64.b64decode(step["precompiled_charsmap"], validate=False)
        for part in step.get("normalizers") or ():
            yield from _character_maps(part)


def check_growth(backend: Backend, name: str) -> None:
    """Refuse a tokenizer whose steps can turn a short text into one that does not fit in memory."""
    encoding = _growth(_state(backend.normalizer)) * _growth(_state(backend.pre_tokenizer))
    encoding *= _growth(_state(backend.post_processor))
    if max(encoding, _growth(_state(backend.decoder))) > _MAX_GROWTH:
        raise DataError(f"{name} makes texts more than {_MAX_GROWTH:,} times longer", "use another tokenizer")


def _growth(step: Any) -> int:
    """Return a limit of how many times longer a step can make a text."""
    limit = _GROWTH.get(step["type"], 1) if isinstance(step, dict) else 1
    return limit if isinstance(limit, int) else max(1, limit(step))


def _sequence_growth(step: dict[str, Any]) -> int:
    return prod(_growth(part) for parts in step.values() if isinstance(parts, list) for part in parts)


def _replacement_growth(step: dict[str, Any]) -> int:
    pattern, length = step["pattern"], len(step["content"])
    if replaced := pattern.get("String"):
        return -(-length // len(replaced))  # rounded up
    may_insert = not pattern.get("Regex") or _MAY_BE_EMPTY.search(pattern["Regex"])
    return length + 1 if may_insert else length


def _table_growth(step: dict[str, Any]) -> int:
    """Return the length of the longest replacement in a table of SentencePiece.

    The table has the size of an index (32 bits), the index, and texts that end in a zero byte.
    """
    table = base64.b64decode(step["precompiled_charsmap"])
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max(map(len, texts.split(b"\0")))


# What the steps of the library that are not listed do is bounded.
_GROWTH: dict[str, int | Callable[[dict[str, Any]], int]] = {
    "Sequence": _sequence_growth,
    "Replace": _replacement_growth,
    "Precompiled": _table_growth,
    "Prepend": lambda step: 1 + len(step["prepend"]),
    "TemplateProcessing": lambda step: sum("Sequence" in piece for piece in step["single"]),
    "ByteLevel": 4,
    "BertNormalizer": 3,
    "BPEDecoder": 3,
    "CTC": 3,
}


def _state(step: Any) -> Any:
    """Return what the library would save of a step; ``None`` if there is no step."""
    try:
        return None if step is None else json.loads(step.__getstate__())
    except Exception:  # the library cannot save a step that is written in Python
        return {"type": "Custom"}


def _known_steps() -> list[tuple[Any, Any]]:
    """Return the states of all pre-tokenizers and decoders that `tokenizer_training` combines."""
    words, byte_level = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    short_words = pre_tokenizers.Split(Regex(".{1,100}"), "isolated")
    subwords = decoders.Sequence([decoders.Replace("▁", ""), decoders.Fuse(), byte_level])
    symbols = [
        pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
    ]
    known: list[tuple[Any, Any]] = [
        (words, subwords),  # bpe, unigram
        (pre_tokenizers.Sequence([words, short_words]), subwords),  # wordpiece
        (None, decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])),  # char
        (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), byte_level),  # byte
        (pre_tokenizers.Sequence(symbols), byte_level),
    ]
    return [(_state(pre_tokenizer), _state(decoder)) for pre_tokenizer, decoder in known]


_KNOWN_STEPS = _known_steps()
