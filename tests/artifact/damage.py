"""Model folders, changed by hand."""

import json

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from transduce import artifact
from transduce.errors import ArtifactError


def refused(folder) -> str:
    """Return the message with which a folder is refused; it is one line."""
    with pytest.raises(ArtifactError) as caught:
        artifact.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(folder, **changes):
    """Change config.json: ``model__d_ff=3`` sets ``d_ff`` of ``model``."""
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        *tables, last = key.split("__")
        table = config
        for name in tables:
            table = table[name]
        table[last] = value
    (folder / "config.json").write_text(json.dumps(config))


def rewrite(folder, change):
    """Replace the tensors, with the same header."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    save_file(change(load_file(path)), path, metadata)
