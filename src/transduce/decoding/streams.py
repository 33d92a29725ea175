"""Lines from files and standard input, results to files and standard output."""

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import IO, Literal, cast

from rich.console import Console

from transduce.artifact import is_part_of_a_model
from transduce.data.standard_input import raw_input_lines, require_input
from transduce.data.text_files import decode_lines, is_same_file, open_binary, raw_lines
from transduce.decoding.translation import Translation, in_one_line
from transduce.decoding.translator import LOOKAHEAD, Translator
from transduce.errors import DataError, reason_of
from transduce.terminal import with_bar

_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1  # file descriptors


def translate_file(
    translator: Translator,
    source: Path | None,
    target: Path | None,
    layout: Literal["text", "json"],
    console: Console | None = None,
    already_read: Sequence[Path] = (),
    factors: Sequence[Path] = (),
) -> None:
    """Translate the lines of a file, or of standard input as they arrive.

    Without a ``target``, translations go to standard output. ``console`` shows the progress, unless it would
    mix with the translations. ``already_read`` are files of the translator, such as a glossary, which must
    not be overwritten. ``factors`` are the files of the model's source factors.
    """
    lines = read_lines(source)
    if source or factors:
        translations = translator.stream(
            lines,
            factors=[read_lines(path) for path in factors],
            factor_names=[str(path) for path in factors],
        )
    else:
        translations = translator.stream_chunks(_arriving(lines))
    if console and console.is_terminal and source and (target or not (sys.stdout and sys.stdout.isatty())):
        # Lines of a pipe cannot be counted: it can be read only once.
        total = sum(1 for _ in raw_lines(source)) if source.is_file() else None
        translations = with_bar(translations, "translating", total, console)
    several = translator.settings.nbest > 1
    write_lines(_formatted(translations, layout, several), source, target, [*already_read, *factors])


def _formatted(
    translations: Iterable[Translation], layout: Literal["text", "json"], several: bool
) -> Iterator[str]:
    """Yield the lines that are written for each translation.

    Several candidates in text are written as Moses and Marian do: ``sentence number ||| text ||| score``,
    counted from 0.
    """
    for number, translation in enumerate(translations):
        if layout == "json":
            named = [finding._asdict() for finding in translation.findings]
            yield json.dumps({**asdict(translation), "findings": named}, ensure_ascii=False)
        elif several:
            for candidate in translation.candidates:
                yield f"{number} ||| {in_one_line(candidate.text)} ||| {candidate.score:.4f}"
        else:
            yield translation.line


def _arriving(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield all lines that have arrived, up to a limit; if there are none, wait for the next one."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=LOOKAHEAD)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    end: BaseException | None = None
    more = True
    while more:
        chunk: list[str] = []
        while more and len(chunk) < LOOKAHEAD and (not chunk or not arrived.empty()):
            item = arrived.get()
            if isinstance(item, str):
                chunk.append(item)
            else:
                more, end = False, item
        yield chunk
    if end is not None:
        raise end


def read_lines(source: Path | None) -> Iterator[str]:
    """Return the lines of a file, or of standard input as they arrive, decoded as UTF-8."""
    if source:
        return decode_lines(raw_lines(source), str(source))
    return decode_lines(raw_input_lines(), "standard input")


def write_lines(
    lines: Iterable[str], source: Path | None, target: Path | None, also_read: Sequence[Path] = ()
) -> None:
    """Write each line as soon as it is there; see `open_output`.

    If computing the first line fails, what was in the file stays.
    """
    with open_output(source, target, also_read) as out:
        iterator = iter(lines)
        first = list(islice(iterator, 1))
        truncate(out, target)
        for line in chain(first, iterator):
            out.write(f"{line}\n".encode())
            out.flush()


def open_output(
    source: Path | None, target: Path | None, also_read: Sequence[Path] = ()
) -> AbstractContextManager[IO[bytes]]:
    """Open a file, or standard output, after `check_output`. The file's contents stay until `truncate`."""
    check_output(source, target, also_read)
    if target is None:
        return nullcontext(standard_output())
    try:
        return cast("IO[bytes]", target.open("ab"))
    except OSError as error:
        raise DataError(f"cannot write {target}: {reason_of(error)}", "choose another --output") from error


def check_output(source: Path | None, target: Path | None, also_read: Sequence[Path] = ()) -> None:
    """Refuse to overwrite a file that is read or a part of a model; require a source that can be read."""
    for path in (source or _STANDARD_INPUT, *also_read):
        if is_same_file(path, target or _STANDARD_OUTPUT):
            raise DataError(
                f"{target or source or 'standard output'} is both read and written", "choose another --output"
            )
    if source is None:
        require_input()
    elif not source.exists() or source.is_file() or source.is_dir():  # a pipe can be opened only once
        open_binary(source).close()
    if target is not None:
        refuse_model_file(target)


def refuse_model_file(target: Path, option: str = "--output") -> None:
    """Refuse to overwrite a file of a model folder."""
    if is_part_of_a_model(target):
        raise DataError(f"{target} is part of a model folder", f"choose another {option}")


def truncate(out: IO[bytes], target: Path | None) -> None:
    """Delete the contents of an output file; pipes and devices have none."""
    if target is not None and target.is_file():
        out.truncate(0)


def standard_output() -> IO[bytes]:
    """Return standard output as a binary stream."""
    if sys.stdout is None:  # the shell's `>&-` closes it
        raise DataError("standard output is closed", "name a file with --output")
    return sys.stdout.buffer
