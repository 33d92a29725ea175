"""The pickled fields of torchtext in which OpenNMT-py 2 stores its vocabularies.

``vocab`` is {"src": TextMultiField, "tgt": TextMultiField, "indices": Field}. A `TextMultiField` has
``fields``, a list of one pair (name, `Field`); a `Field` has ``vocab``, a `Vocab` whose ``itos`` is the list
of tokens. The state of each is a dictionary that BUILD sets. Both packages are stood in for, so that neither
is needed.
"""

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

_CLASSES = {
    "onmt.inputters.text_dataset": ["TextMultiField"],
    "torchtext.data.field": ["Field"],
    "torchtext.vocab": ["Vocab"],
}
_FUNCTIONS = {"onmt.inputters.text_dataset": "_feature_tokenize", "torchtext.data.utils": "_split_tokenizer"}


@contextmanager
def stand_ins() -> Iterator[dict[str, Any]]:
    """Yield classes and functions that pickle under the names of packages that need not be installed."""
    made: dict[str, Any] = {}
    modules: dict[str, ModuleType] = {}
    for name in {*_CLASSES, *_FUNCTIONS}:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    for module, names in _CLASSES.items():
        for name in names:
            made[name] = type(name, (), {"__module__": module})
            setattr(modules[module], name, made[name])
    for module, name in _FUNCTIONS.items():
        made[name] = FunctionType((lambda: None).__code__, {"__name__": module}, name)
        made[name].__qualname__ = name
        setattr(modules[module], name, made[name])
    hidden = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield made
    finally:
        for name, module in hidden.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def pickled_fields(classes: dict[str, Any], source: list[str], target: list[str]) -> dict[str, Any]:
    """Return the fields of torchtext that version 2 pickles: they contain the vocabularies."""

    def make(name: str, attributes: dict[str, Any]) -> Any:
        made = classes[name]()
        made.__dict__.update(attributes)
        return made

    def field(side: str, tokens: list[str]) -> Any:
        split = functools.partial(classes["_feature_tokenize"], layer=None, truncate=None, feat_delim=None)
        vocabulary = {
            "freqs": Counter({token: len(tokens) - n for n, token in enumerate(tokens[4:])}),
            "itos": tokens,
            "unk_index": 0,
            "stoi": {token: n for n, token in enumerate(tokens)},
            "vectors": None,
        }
        attributes = {
            **_field_attributes(),
            "init_token": "<s>" if side == "tgt" else None,
            "eos_token": "</s>" if side == "tgt" else None,
            "pad_token": "<blank>",
            "include_lengths": side == "src",
            "tokenizer_args": (split, "en"),
            "tokenize": split,
            "dtype": "int64",
            "vocab": make("Vocab", vocabulary),
        }
        base = {"preprocessing": None, "postprocessing": None, "is_target": False}
        return make("TextMultiField", {**base, "fields": [(side, make("Field", attributes))]})

    indices = {**_field_attributes(), "sequential": False, "use_vocab": False, "pad_token": None}
    indices |= {"tokenizer_args": (None, "en"), "tokenize": classes["_split_tokenizer"]}
    indices |= {"dtype": "int64"}
    return {"src": field("src", source), "tgt": field("tgt", target), "indices": make("Field", indices)}


def _field_attributes() -> dict[str, Any]:
    return {
        "sequential": True,
        "use_vocab": True,
        "init_token": None,
        "eos_token": None,
        "unk_token": "<unk>",
        "fix_length": None,
        "preprocessing": None,
        "postprocessing": None,
        "lower": False,
        "include_lengths": False,
        "batch_first": False,
        "pad_first": False,
        "truncate_first": False,
        "stop_words": None,
        "is_target": False,
    }
