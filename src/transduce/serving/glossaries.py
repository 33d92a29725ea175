"""Glossaries that clients store on the server: one file each, written atomically, shared by all workers."""

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from transduce.files import write_atomically
from transduce.serving.errors import NotFoundError, RequestError, TooLargeError

MOST_GLOSSARIES, MOST_DICTIONARIES, MOST_ENTRIES, LONGEST_TERM = 1000, 100, 10_000, 1024
MOST_WORDS = 1000  # that stay as they are; each is looked for at every place of a text
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,34}")
# Control characters, the line breaks of Unicode among them: clients read entries as lines of TSV.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Dictionary(BaseModel):
    """Terms of one direction and their translations; languages may be left out."""

    model_config = ConfigDict(frozen=True)

    source: str = ""
    target: str = ""
    entries: dict[str, str]

    @property
    def pair(self) -> tuple[str, str]:
        """The languages, as they are compared."""
        return self.source.lower(), self.target.lower()


class StoredGlossary(BaseModel):
    """A glossary with dictionaries for one direction or several."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    created: str  # ISO 8601, with fractions of a second and Z
    dictionaries: tuple[Dictionary, ...]

    def dictionary(self, source: str, target: str) -> Dictionary:
        """Return the dictionary of a direction."""
        for dictionary in self.dictionaries:
            if dictionary.pair == (source.lower(), target.lower()):
                return dictionary
        raise NotFoundError(f"the glossary has no dictionary for {source} to {target}", "choose another one")

    def terms(self, source: str | None, target: str | None) -> tuple[tuple[str, str], ...]:
        """Return the terms for a direction; a code without a region finds those with one."""
        for dictionary in self.dictionaries:
            wanted = zip((source, target), dictionary.pair, strict=True)
            if all(
                not (code and own) or code.lower().split("-")[0] == own.split("-")[0] for code, own in wanted
            ):
                return tuple(dictionary.entries.items())
        raise RequestError("the glossary has no dictionary for these languages", "choose another glossary")

    def with_dictionary(self, new: Dictionary, *, merge: bool) -> "StoredGlossary":
        """Return the glossary with a dictionary added, replaced or, with ``merge``, extended."""
        kept = [dictionary for dictionary in self.dictionaries if dictionary.pair != new.pair]
        for old in self.dictionaries:
            if merge and old.pair == new.pair:
                new = new.model_copy(update={"entries": {**old.entries, **new.entries}})
        if len(kept) >= MOST_DICTIONARIES:
            raise TooLargeError(f"the glossary has {len(kept)} dictionaries already", "delete some of them")
        return self.model_copy(update={"dictionaries": (*kept, checked(new))})

    def without_dictionary(self, source: str, target: str) -> "StoredGlossary":
        """Return the glossary without the dictionary of a direction, which must not be the only one."""
        removed = self.dictionary(source, target)
        kept = tuple(dictionary for dictionary in self.dictionaries if dictionary is not removed)
        if not kept:
            raise RequestError("it is the only dictionary of the glossary", "delete the glossary")
        return self.model_copy(update={"dictionaries": kept})


class GlossaryStore:
    """The glossaries of a folder. Nothing is kept in memory, so that all workers see the same."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def create(self, name: str, dictionaries: Sequence[Dictionary]) -> StoredGlossary:
        """Store a new glossary."""
        with self._changing():
            return self._create(name, dictionaries)

    def change(self, glossary_id: str, make: Callable[[StoredGlossary], StoredGlossary]) -> StoredGlossary:
        """Replace a glossary by what is made of it."""
        with self._changing():
            glossary = make(self.get(glossary_id))
            self._save(glossary)
        return glossary

    def _create(self, name: str, dictionaries: Sequence[Dictionary]) -> StoredGlossary:
        if sum(1 for _ in self._folder.glob("*.json")) >= MOST_GLOSSARIES:
            raise TooLargeError(f"there are {MOST_GLOSSARIES:,} glossaries already", "delete some of them")
        pairs = [dictionary.pair for dictionary in dictionaries]
        if not dictionaries or len(set(pairs)) < len(pairs) or len(pairs) > MOST_DICTIONARIES:
            raise RequestError(
                "a glossary needs one dictionary per direction", "give each pair of languages once"
            )
        glossary = StoredGlossary(
            id=str(uuid.uuid4()),
            name=_checked_name(name),
            created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            dictionaries=tuple(checked(dictionary) for dictionary in dictionaries),
        )
        self._save(glossary)
        return glossary

    def _save(self, glossary: StoredGlossary) -> None:
        """Write a glossary: all of it, or nothing."""
        _checked_name(glossary.name)
        text = json.dumps(glossary.model_dump(mode="json"), ensure_ascii=False)
        write_atomically(self._path(glossary.id), text.encode())

    def get(self, glossary_id: str) -> StoredGlossary:
        """Return a glossary by its id."""
        try:
            return StoredGlossary.model_validate_json(self._path(glossary_id).read_bytes())
        except FileNotFoundError:
            raise _unknown() from None
        except ValidationError as error:
            raise NotFoundError("the glossary is damaged", "delete it and store it again") from error

    def all(self) -> Iterator[StoredGlossary]:
        """Yield all glossaries, oldest first."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                found.append(StoredGlossary.model_validate_json(path.read_bytes()))
            except (FileNotFoundError, ValidationError):  # deleted just now, or damaged
                continue
        return iter(sorted(found, key=lambda glossary: glossary.created))

    def delete(self, glossary_id: str) -> None:
        """Delete a glossary."""
        path = self._path(glossary_id)
        with self._changing():
            try:
                path.unlink()
            except FileNotFoundError:
                raise _unknown() from None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other threads and processes from changing glossaries at the same time."""
        with self._lock, (self._folder / ".lock").open("a") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            except (ImportError, OSError):  # Windows, and some network file systems, have no such locks
                pass
            yield

    def _path(self, glossary_id: str) -> Path:
        if not _ID.fullmatch(glossary_id):  # no other text may become part of a path
            raise _unknown()
        return self._folder / f"{glossary_id}.json"


def checked(dictionary: Dictionary) -> Dictionary:
    """Refuse a dictionary that is empty or over a limit; return it with terms stripped."""
    for code in (dictionary.source, dictionary.target):
        if code and not _CODE.fullmatch(code):
            raise RequestError("a language of the glossary is not a code", "use codes such as de and pt-BR")
    return dictionary.model_copy(update={"entries": checked_entries(dictionary.entries)})


def checked_entries(terms: Mapping[str, str]) -> dict[str, str]:
    """Refuse terms that are over a limit or have a blank side; return them stripped."""
    entries = {source.strip(): target.strip() for source, target in terms.items()}
    if not entries:
        raise RequestError("the glossary has no entries", "give at least one term and its translation")
    if len(entries) > MOST_ENTRIES:
        raise TooLargeError(f"the glossary has more than {MOST_ENTRIES:,} entries", "give fewer")
    for number, (source, target) in enumerate(entries.items(), start=1):
        if not source or not target:
            raise RequestError(f"entry {number} of the glossary lacks a side", "give both sides")
        if max(len(source), len(target)) > LONGEST_TERM:
            raise TooLargeError(
                f"entry {number} of the glossary has more than {LONGEST_TERM:,} characters", "shorten it"
            )
        if _FORBIDDEN.search(source + target):
            raise RequestError(
                f"entry {number} of the glossary has a tab, a line break or another control character",
                "remove it",
            )
    return entries


def checked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Refuse words, which stay as they are, that are over a limit; return those that are not blank."""
    if len(words) > MOST_WORDS:
        raise TooLargeError(f"there are more than {MOST_WORDS:,} words not to translate", "give fewer")
    if any(len(word) > LONGEST_TERM for word in words):
        raise TooLargeError(
            f"a word not to translate has more than {LONGEST_TERM:,} characters", "shorten it"
        )
    return tuple(word for word in words if word.strip())


def parse_entries(text: str, layout: str) -> dict[str, str]:
    """Read entries from lines of TSV or CSV."""
    import csv
    import io

    if layout not in ("tsv", "csv"):
        raise RequestError("entries_format is neither tsv nor csv", "use one of them")
    rows = (
        (line.split("\t") for line in _LINE_BREAK.split(text))
        if layout == "tsv"
        else csv.reader(io.StringIO(text), strict=False)
    )
    entries: dict[str, str] = {}
    try:
        for number, row in enumerate(rows, start=1):
            if not any(cell.strip() for cell in row):
                continue
            if len(row) < 2:
                raise RequestError(
                    f"line {number} of the entries has one column", "separate source and target"
                )
            source, target = row[0].strip(), row[1].strip()
            if entries.setdefault(source, target) != target:
                raise RequestError(
                    f"line {number} of the entries repeats an earlier term", "give each term once"
                )
    except csv.Error:
        raise RequestError("the entries are not valid CSV", "send TSV instead") from None
    return entries


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_TERM or _FORBIDDEN.search(name):
        raise RequestError(
            "the name of the glossary is blank, too long or has control characters", "choose another name"
        )
    return name


def _unknown() -> NotFoundError:
    return NotFoundError("there is no such glossary", "list the glossaries to see their ids")
