"""The foreign formats, in the order in which they are tried: those with the most specific files first."""

from pathlib import Path

from transduce.errors import ArtifactError
from transduce.files import user_path
from transduce.interop import ctranslate2_import, folders, marian_import
from transduce.interop.hub import download, looks_like_id
from transduce.interop.imported import Format, Imported

FORMATS: tuple[Format, ...] = (ctranslate2_import.FORMAT, marian_import.FORMAT, folders.FORMAT)


def read_foreign(path: str | Path, name: str | None = None) -> Imported:
    """Read a model in a foreign format, which is recognised unless its name is given.

    A path that does not exist may be the id of a model on the Hugging Face Hub.
    """
    given, path = path, user_path(path)
    if not path.exists() and looks_like_id(str(given)):
        path = download(str(given))
    if not path.exists():
        raise ArtifactError(f"{path} does not exist", "give a file or folder with a model")
    found = find_format(path) if name is None else _named(name)
    return found.read(path)


def find_format(path: Path) -> Format:
    """Return the format of a file or folder."""
    for each in FORMATS:
        if each.recognises(path):
            return each
    known = "; ".join(each.description for each in FORMATS)
    raise ArtifactError(f"{path} is in no format that can be imported", f"give one of: {known}")


def _named(name: str) -> Format:
    for each in FORMATS:
        if each.name == name:
            return each
    raise ArtifactError(
        f"there is no format {name!r}", f"use one of: {', '.join(each.name for each in FORMATS)}"
    )
