"""From a foreign model to a model folder."""

from pathlib import Path

from transduce import artifact
from transduce.interop.formats import read_foreign
from transduce.interop.imported import Imported
from transduce.interop.mapped import read_mapped


def import_model(
    path: str | Path, out: str | Path, format_name: str | None = None, names: str | Path | None = None
) -> Imported:
    """Read a model in a foreign format and write a model folder.

    ``names`` is a mapping file that says which tensor is what, for models with ``torch.nn.Transformer``.
    """
    imported = read_foreign(path, format_name) if names is None else read_mapped(path, names)
    artifact.save(imported.model, out, imported.tokenizer)
    return imported
