"""Translations of files and streams."""

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from rich.console import Console

from transduce.data.text_files import raw_lines
from transduce.decoding.streams import read_lines, write_lines
from transduce.decoding.translation import Translation
from transduce.decoding.translator import LINES, Translator
from transduce.terminal import with_bar

Layout = Literal["text", "json"]


def translate_file(
    translator: Translator,
    source: Path | None,
    target: Path | None,
    layout: Layout,
    console: Console | None = None,
    glossary: Path | None = None,
) -> None:
    """A line out for every line in; standard input and output where no file is given.

    What comes from a stream is translated as it comes. ``console`` shows how far a file is, if its
    translation does not show itself there. The ``glossary`` is what the translator has read its terms from.
    """
    found = _translations(translator, source)
    if console and source and (target or not (sys.stdout and sys.stdout.isatty())):
        # What is no file, but a pipe, can be read only once.
        total = sum(1 for _ in raw_lines(source)) if source.is_file() else None
        found = with_bar(found, "translating", total, console)
    write_lines((_line(translation, layout) for translation in found), source, target, glossary)


def _translations(translator: Translator, source: Path | None) -> Iterator[Translation]:
    lines = read_lines(source)
    return translator.translate(lines) if source else translator.translate_chunks(_as_they_come(lines))


def _as_they_come(lines: Iterable[str]) -> Iterator[list[str]]:
    """All lines that are there, up to some; and if there are none, the next one as soon as it comes."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=LINES)

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
        while more and len(chunk) < LINES and (not chunk or not arrived.empty()):
            one = arrived.get()
            if isinstance(one, str):
                chunk.append(one)
            else:
                more, end = False, one
        yield chunk
    if end is not None:
        raise end


def _line(translation: Translation, layout: Layout) -> str:
    if layout == "json":
        return json.dumps(asdict(translation), ensure_ascii=False)
    return translation.line
