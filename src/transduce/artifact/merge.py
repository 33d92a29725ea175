"""Merging an adapter into the model it belongs to."""

from pathlib import Path

from transduce.artifact.adapter import load_merged
from transduce.artifact.adapter_header import ADAPTER, base_folder, is_adapter, read_adapter_header
from transduce.artifact.folder import load_tokenizer, save
from transduce.artifact.header import read_header
from transduce.errors import ArtifactError
from transduce.files import folder_path
from transduce.models.protocol import Model


def merge_adapter(folder: str | Path, out: str | Path, *, base: str | Path | None = None) -> Model:
    """Write an adapter and its model as one plain model folder, in float32, and return the model.

    ``base`` is where the adapted model is now, if not where the adapter says.
    """
    folder = folder_path(folder)
    if not folder.exists():
        raise ArtifactError(f"{folder} does not exist", "give the adapter folder of a run, such as RUN/final")
    if not is_adapter(folder):
        raise ArtifactError(
            f"{folder} is not an adapter folder: it has no {ADAPTER}",
            "give a model folder of a run with --adapter, such as RUN/final",
        )
    adapter = read_adapter_header(folder)
    place = base_folder(folder, adapter) if base is None else folder_path(base)
    model = load_merged(folder, base=place)
    header = read_header(place)
    tokenizer = load_tokenizer(place) if header.files else None
    save(model, out, tokenizer, longest_source=adapter.longest_source or header.longest_source)
    return model
