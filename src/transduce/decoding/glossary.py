"""Terms that have one translation: where a source has the term, its target must have the translation."""

import re
from dataclasses import dataclass
from pathlib import Path

from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import ConfigError, DataError


@dataclass(frozen=True)
class Glossary:
    """Pairs of terms; and words that every target must have."""

    terms: tuple[tuple[str, str], ...] = ()
    always: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path | None, always: tuple[str, ...] = ()) -> "Glossary":
        """A file with a source term, a tab and its translation a line."""
        if not all(words.strip() for words in always):
            raise ConfigError("a constraint has no words", "say what must appear, or leave it out")
        terms: dict[str, tuple[str, str]] = {}
        lines = decode_lines(raw_lines(path), str(path)) if path else ()
        for number, line in enumerate(lines, start=1):
            columns = [column.strip() for column in line.split("\t")]
            if not any(columns):
                continue
            if len(columns) != 2 or not all(columns):
                raise DataError(
                    f"{path}, line {number}: not a source term, a tab and its translation", "correct the line"
                )
            source, target = columns
            if terms.setdefault(source.lower(), (source, target))[1] != target:
                raise DataError(
                    f"{path}, line {number}: {source!r} has another translation further up", "leave one out"
                )
        return cls(tuple(terms.values()), always)

    def wanted(self, source: str) -> list[str]:
        """What the target of this source must have, each once; terms count as whole words, in any case."""
        found = [
            target
            for term, target in self.terms
            if re.search(rf"(?<!\w){re.escape(term)}(?!\w)", source, re.IGNORECASE)
        ]
        return list(dict.fromkeys([*self.always, *found]))
