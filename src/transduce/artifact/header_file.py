"""What all headers have in common: they are read from JSON beside the weights and from their metadata."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from transduce.artifact.weights import COPY_AGAIN, HEADER_KEY, read_metadata
from transduce.config import Settings, validate
from transduce.errors import ArtifactError, ConfigError, DataError, reason_of, remedy_for
from transduce.files import parse_json, read_small

HeaderT = TypeVar("HeaderT", bound=Settings)


@dataclass(frozen=True)
class HeaderKind(Generic[HeaderT]):
    """A kind of header, and how it is recognised."""

    settings: type[HeaderT]
    mark: str  # a field that only our own files have
    newest_format: int  # that this version reads

    def read(self, path: Path) -> HeaderT | None:
        """Read a JSON file that people may edit; ``None`` if there is none."""
        try:
            data = read_small(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
        except DataError as error:
            raise ArtifactError(error.problem, error.remedy) from error
        return self._parse(data, path)

    def read_stored(self, weights: Path) -> HeaderT:
        """Read the header from the metadata of the weights."""
        return self._parse(read_metadata(weights).get(HEADER_KEY, "{}"), weights)

    def _parse(self, data: bytes | str, path: Path) -> HeaderT:
        content = parse_json(data, path, remedy=COPY_AGAIN)
        if not isinstance(content, dict) or self.mark not in content:
            raise ArtifactError(
                f"{path} was not written by transduce",
                "give another folder, or import a model of another toolkit first: transduce import",
            )
        version = content.get("format")
        if isinstance(version, int) and version > self.newest_format:
            raise ArtifactError(
                f"{path} has format {version}, but this version of transduce reads formats up to "
                f"{self.newest_format}",
                "upgrade transduce",
            )
        try:
            return validate(self.settings, content, where=str(path))
        except ConfigError as error:
            raise ArtifactError(error.problem, error.remedy) from error


def require_unedited(
    path: Path, readable: Settings, stored: Settings, *, editable: Collection[str], remedy: str
) -> None:
    """Refuse edits that change the meaning of the weights, whether or not their shapes still fit.

    ``editable`` are the dotted names of settings that may differ.
    """
    edited, saved = _flatten(readable), _flatten(stored)
    for key in (key for key in {**saved, **edited} if key not in editable):
        if edited.get(key) != saved.get(key):
            raise ArtifactError(
                f"{path} says {key} = {edited.get(key)!r}, "
                f"but the weights were saved with {saved.get(key)!r}",
                remedy,
            )


def _flatten(header: Settings) -> dict[str, object]:
    """Return all settings by their dotted names."""
    return {key.removeprefix("."): value for key, value in _entries(header.model_dump(), "")}


def _entries(table: Mapping[str, Any], name: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _entries(value, f"{name}.{key}")
        else:
            yield f"{name}.{key}", value
