"""Back-translation (Sennrich et al., 2016): synthetic sources for monolingual text in the target language."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from transduce.data.text_files import raw_lines
from transduce.decoding.streams import read_lines, write_lines
from transduce.decoding.translation import Translation
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError
from transduce.terminal import with_bar


def backtranslate_file(
    translator: Translator,
    monolingual: Path | None,
    pairs: Path | None,
    *,
    tag: str = "",
    console: Console | None = None,
) -> None:
    """Translate monolingual text with a reverse model and write synthetic pairs, as a .tsv for training.

    ``translator`` translates from the target language into the source language of the model to train. Every
    line of the output is a synthetic source, a tab and the real target; lines without a translation are left
    out. ``tag`` is put in front of every synthetic source, so that the model can tell it from real text
    (Caswell et al., 2019).
    """
    if "\t" in tag or "\n" in tag:
        raise ConfigError("tag (--tag) contains a tab or a line break", "use a word such as <BT>")
    translations: Iterable[Translation] = translator.stream(read_lines(monolingual))
    if console and console.is_terminal and monolingual and monolingual.is_file():
        total = sum(1 for _ in raw_lines(monolingual))
        translations = with_bar(translations, "back-translating", total, console)
    write_lines(_pairs(translations, tag), monolingual, pairs)


def _pairs(translations: Iterable[Translation], tag: str) -> Iterator[str]:
    for translation in translations:
        for candidate in translation.candidates:
            source, target = _cell(candidate.text), _cell(translation.source)
            if source:
                yield f"{tag} {source}\t{target}" if tag else f"{source}\t{target}"


def _cell(text: str) -> str:
    """Return a text without the tabs and line breaks that would break a row."""
    return " ".join(text.split())
