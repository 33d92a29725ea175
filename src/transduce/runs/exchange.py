"""From a foreign model to a model folder."""

from pathlib import Path

from transduce import artifact
from transduce.interop.formats import read_foreign
from transduce.interop.imported import Imported


def import_model(path: str | Path, out: str | Path, format_name: str | None = None) -> Imported:
    """Read a model in a foreign format and write a model folder."""
    imported = read_foreign(path, format_name)
    artifact.save(imported.model, out, imported.tokenizer)
    return imported
