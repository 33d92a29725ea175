"""Tokenizers as the page runs them: what its scripts can do, and which tokenizers are made of just that."""

import json
from typing import Any

from transduce.data.tokenizer import SideTokenizer

# What page/walk/tokenizer*.js can do; a sequence of steps is known if all of its steps are.
_NORMALIZERS = {
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Strip",
    "StripAccents",
    "Prepend",
    "Replace",
    "BertNormalizer",
}
_PRE_TOKENIZERS = {"ByteLevel", "Split", "Metaspace", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"}
_MODELS = {"BPE", "Unigram", "WordPiece", "WordLevel"}
_DECODERS = {"ByteLevel", "Replace", "Fuse", "ByteFallback", "WordPiece", "Metaspace", "BPEDecoder", "Strip"}
# Regular expressions of our own training and our own readers
_CHUNKS = ".{1,100}"
_ENDS_OF_LINES = r"^[\r\n ]+|[\r\n ]+$"


def tokenizer_data(side: SideTokenizer) -> dict[str, Any] | None:
    """Return a tokenizer for the page; ``None`` if it has steps that the page cannot do.

    The steps are those of ``tokenizer.json``. With ``tokens``, the model numbers its tokens in this order.
    """
    state = json.loads(side.backend.to_str())
    steps = (
        (state["normalizer"], _NORMALIZERS),
        (state["pre_tokenizer"], _PRE_TOKENIZERS),
        (state["decoder"], _DECODERS),
    )
    if not all(_is_known(step, known) for step, known in steps) or not _is_known_model(state["model"]):
        return None
    plain = side.backend.encode_special_tokens
    if not plain and not all(map(_is_simple, state["added_tokens"])):
        return None
    return {
        "normalization": side.normalization,
        "native": side.native,
        "plain": plain,
        "normalizer": state["normalizer"],
        "preTokenizer": state["pre_tokenizer"],
        "model": state["model"],
        "decoder": state["decoder"],
        "addedTokens": [
            {key: token[key] for key in ("id", "content", "special")} for token in state["added_tokens"]
        ],
        "tokens": None if side.map is None else side.map.tokens,
        "special": sorted(side.special),
    }


def _is_known(step: dict[str, Any] | None, known: set[str]) -> bool:
    """Return whether the page can do a step and all its parts."""
    if step is None:
        return True
    if step["type"] == "Sequence":
        parts = next(value for value in step.values() if isinstance(value, list))
        return all(_is_known(part, known) for part in parts)
    if step["type"] == "Split":
        pattern = step["pattern"]
        behaviors = {"MergedWithNext", "Removed"} if pattern.get("String") else {"Isolated"}
        is_ours = pattern.get("Regex", _CHUNKS) == _CHUNKS and not step["invert"]
        return is_ours and step["behavior"] in behaviors
    if step["type"] == "Replace" and not step["pattern"].get("String"):
        return known is _NORMALIZERS and step["pattern"].get("Regex") == _ENDS_OF_LINES
    return step["type"] in known


def _is_known_model(model: dict[str, Any]) -> bool:
    return model["type"] in _MODELS and not model.get("dropout")


def _is_simple(token: dict[str, Any]) -> bool:
    """Return whether an added token is found in a text wherever its characters are."""
    return not any(token[key] for key in ("single_word", "lstrip", "rstrip", "normalized"))
