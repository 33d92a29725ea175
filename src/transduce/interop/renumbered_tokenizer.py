"""Tokenizers of the ``tokenizers`` library with a model's own ids, where ids cannot be mapped afterwards."""

import json
from collections.abc import Collection
from typing import Any

from tokenizers import Tokenizer

from transduce.data.token_map import UNKNOWN
from transduce.data.tokenizer import SideTokenizer
from transduce.errors import ConfigError

# Before the names of tokens that the tokenizer does not make of a text: a noncharacter, in no text
_MARK = "\ufdd2"
_NEVER_MADE = {*UNKNOWN, "<s>", "</s>", "<pad>"}


def renumbered(side: SideTokenizer, special: Collection[str]) -> Tokenizer:
    """Return a tokenizer that gives a text the model's ids by itself.

    Tokens of the model that the tokenizer does not make are there under names that no text has, so that
    they can be decoded; ``special`` ones keep their names. A tokenizer that makes tokens that the model lacks
    is refused, naming one.
    """
    if side.map is None:
        return Tokenizer.from_str(side.backend.to_str())
    state: dict[str, Any] = json.loads(side.backend.to_str())
    model, ids = state["model"], side.map.ids
    made = side.backend.get_vocab(with_added_tokens=False)
    lost = sorted(token for token in made if token not in ids and token not in _NEVER_MADE)
    if lost:
        raise _refusal(
            f"it makes {len(lost):,} pieces that the model does not have, such as {lost[0]!r}, and only our "
            "own tokenizers turn such pieces into unknown tokens"
        )
    if side.map.unknown is None:
        raise _refusal("the model has no unknown token")
    merges_only = model["type"] == "BPE" and not model.get("ignore_merges")
    # A token of several characters that no merges make is never found in a text.
    names = [
        token if token in made or token in special or (merges_only and len(token) > 1) else _MARK + token
        for token in side.map.tokens
    ]
    if model["type"] == "Unigram":
        scores = dict(model["vocab"])
        lowest = min(scores.values())
        model["vocab"] = [(name, scores.get(name, lowest)) for name in names]
        model["unk_id"] = side.map.unknown
    else:
        model["vocab"] = {name: number for number, name in enumerate(names)}
        model["unk_token"] = names[side.map.unknown]
    if any(name.startswith(_MARK) for name in names):
        if state["decoder"] is None:
            raise _refusal("the model has tokens that the tokenizer does not make")
        unmark = {"type": "Replace", "pattern": {"String": _MARK}, "content": ""}
        state["decoder"] = {"type": "Sequence", "decoders": [unmark, state["decoder"]]}
    added = {ids[token["content"]]: token for token in state["added_tokens"] if token["content"] in ids}
    state["added_tokens"] = [{**added[number], "id": number} for number in sorted(added)]
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def _refusal(reason: str) -> ConfigError:
    return ConfigError(
        f"transformers cannot have the model's tokenizer: {reason}",
        "use --to onnx, which has our tokenizer beside the model, or --to ctranslate2",
    )
