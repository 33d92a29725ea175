"""The model folder: ``config.json``, ``model.safetensors`` and the tokenizer.

``model.safetensors`` contains the same header as ``config.json`` in its metadata, so that the weights and
their meaning cannot come apart: renaming this one file replaces the old model by the new one.
"""

from transduce.artifact.folder import (
    is_part_of_a_model,
    load,
    load_as,
    load_text_to_text,
    load_tokenizer,
    save,
)
from transduce.artifact.header import CONFIG, EDITABLE, Header, read_header
from transduce.artifact.weights import WEIGHTS, assemble

__all__ = [
    "CONFIG",
    "EDITABLE",
    "WEIGHTS",
    "Header",
    "assemble",
    "is_part_of_a_model",
    "load",
    "load_as",
    "load_text_to_text",
    "load_tokenizer",
    "read_header",
    "save",
]
