"""The model folder: ``config.json``, ``model.safetensors`` and the tokenizer; and the adapter folder.

``model.safetensors`` contains the same header as ``config.json`` in its metadata, so that the weights and
their meaning cannot come apart: renaming this one file replaces the old model by the new one.
"""

from transduce.artifact.adapter import create_adapter, load_adapted, save_adapter
from transduce.artifact.adapter_header import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    AdapterHeader,
    is_adapter,
    read_adapter_header,
)
from transduce.artifact.folder import (
    is_part_of_a_model,
    load,
    load_as,
    load_text_to_text,
    load_tokenizer,
    save,
)
from transduce.artifact.header import CONFIG, EDITABLE, Header, read_header
from transduce.artifact.merge import merge_adapter
from transduce.artifact.weights import WEIGHTS, assemble

__all__ = [
    "ADAPTER",
    "ADAPTER_WEIGHTS",
    "CONFIG",
    "EDITABLE",
    "WEIGHTS",
    "AdapterHeader",
    "Header",
    "assemble",
    "create_adapter",
    "is_adapter",
    "is_part_of_a_model",
    "load",
    "load_adapted",
    "load_as",
    "load_text_to_text",
    "load_tokenizer",
    "merge_adapter",
    "read_adapter_header",
    "read_header",
    "save",
    "save_adapter",
]
