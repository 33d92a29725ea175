"""Hostile ``tokenizer.json`` files: of the right form, but with rules that hang, panic or want too much."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

SLOW_LINE = "a" * 40 + "b"  # on which (a+)+$ takes 2^40 steps
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
WORDS = ("ab", "cd", "a", "b", "c", "d", "e", "f", "g", "h", " ", "Ġ")
_VOCABULARY = {token: number for number, token in enumerate((*SPECIAL, *WORDS))}
_HUGE = (2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**30)


def hostile_tokenizers() -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file."""
    for name, parts in {**_rules(), **_vocabularies(), **_other_models()}.items():
        yield name, json.dumps(_tokenizer(**parts))
    whole = json.dumps(_tokenizer())
    yield "nested", whole.replace('"decoder": null', f'"decoder": {"[" * 200_000}{"]" * 200_000}')
    yield "nested decoders", whole.replace('"decoder": null', f'"decoder": {_nested_sequences(2000)}')
    yield "a number of many digits", whole.replace('"ab": 4', f'"ab": {"9" * 100_000}')
    yield "NaN as an id", whole.replace('"ab": 4', '"ab": NaN')
    yield "lone surrogate", whole.replace('"ab"', '"\\ud800"')
    yield "repeated token", whole.replace('"cd": 5', '"ab": 5')
    yield "control characters", whole.replace('"ab"', '"\\u001b[31mred\\n"')
    yield "unknown model", whole.replace("WordLevel", "\\u001b[31mred")
    yield "no object", "[]"
    yield "nothing", ""


def tokenizer_of(special: Sequence[str], names: Sequence[str], *, unknown: str = "<unk>") -> dict[str, Any]:
    """Return a valid tokenizer of words; the first ones are special."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    vocabulary = {name: number for number, name in enumerate(names)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": name, **flags} for number, name in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
    }


def _tokenizer(**parts: Any) -> dict[str, Any]:
    """Return a valid tokenizer with other parts."""
    return {**tokenizer_of(SPECIAL, tuple(_VOCABULARY)), **parts}


def _added(number: int, content: str) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": True, "special": False}
    return [*_tokenizer()["added_tokens"], {"id": number, "content": content, **flags}]


def _rules() -> dict[str, dict[str, Any]]:
    """Return rules that split, replace, frame and join tokens."""
    slow = {"Regex": "(a+)+$"}
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    template = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    rules = {
        "slow split": {"pre_tokenizer": {**split, "pattern": slow}},
        "slow replace": {"normalizer": {"type": "Replace", "pattern": slow, "content": "x"}},
        "slow replace in the decoder": {"decoder": {"type": "Replace", "pattern": slow, "content": "x"}},
        "back references": {"pre_tokenizer": {**split, "pattern": {"Regex": r"(a*)*(\1)*b\1c"}}},
        "empty pattern": {"pre_tokenizer": {**split, "pattern": {"String": ""}}},
        "empty regular expression": {"pre_tokenizer": {**split, "pattern": {"Regex": ""}}},
        "broken regular expression": {"pre_tokenizer": {**split, "pattern": {"Regex": "(" * 5000}}},
        "replace nothing by much": {
            "normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 10_000}
        },
        "replace by nothing": {"normalizer": {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}},
        "prepend much": {"normalizer": {"type": "Prepend", "prepend": "a " * 20_000}},
        "forged charsmap": {
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": "////fwAAAAAAAA=="}
        },
        "empty charsmap": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
        "template without its token": {"post_processor": {**template, "single": [start, text]}},
        "template without a text": {"post_processor": {**template, "single": []}},
        "template with an id beyond the vocabulary": {
            "post_processor": {
                **template,
                "single": [start, text],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [4_000_000_000], "tokens": ["<s>"]}},
            }
        },
        "template with ids but no tokens": {
            "post_processor": {
                **template,
                "single": [start, text],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 1, 1], "tokens": []}},
            }
        },
        "pair framing": {
            "post_processor": {"type": "BertProcessing", "sep": ["x", 2**32 - 1], "cls": ["y", 2**32 - 1]}
        },
        "truncation to nothing": {
            "truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}
        },
        "padding to multiples of 0": {
            "padding": {
                "strategy": {"Fixed": 2**40},
                "direction": "Right",
                "pad_to_multiple_of": 0,
                "pad_id": 2**31,
                "pad_type_id": 0,
                "pad_token": "<pad>",
            }
        },
    }
    for size in (1, 100, 2**62):
        strip = {"type": "Strip", "content": "b", "start": size, "stop": size}
        rules[f"strip {size} in the decoder"] = {"decoder": strip}
    for kind in ("CTC", "BPEDecoder", "Metaspace", "WordPiece", "ByteLevel", "ByteFallback", "Fuse"):
        fields = {
            "CTC": {"pad_token": "", "word_delimiter_token": "", "cleanup": True},
            "BPEDecoder": {"suffix": ""},
            "Metaspace": {"replacement": "a", "prepend_scheme": "always", "split": True},
            "WordPiece": {"prefix": "a", "cleanup": True},
            "ByteLevel": {"add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        }
        rules[f"decoder {kind}"] = {"decoder": {"type": kind, **fields.get(kind, {})}}
    return rules


def _vocabularies() -> dict[str, dict[str, Any]]:
    """Return words whose ids are out of order, out of range or missing."""

    def model(vocabulary: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>", **more}}

    known = {token: number for token, number in _VOCABULARY.items() if token != "<unk>"}
    added = [token for token in _tokenizer()["added_tokens"] if token["content"] != "<unk>"]
    cases = {
        "no unknown token": {**model(known), "added_tokens": added},
        "empty vocabulary": {**model({}), "added_tokens": []},
        "nothing but special tokens": model(dict.fromkeys(SPECIAL, 0)),
        "one id for all": model(dict.fromkeys(_VOCABULARY, 0)),
        "negative id": model({**_VOCABULARY, "ab": -1}),
        "id in a text": model({**_VOCABULARY, "ab": "4"}),
        "vocabulary is a list": {"model": {"type": "WordLevel", "vocab": [], "unk_token": "<unk>"}},
        "unknown token that is none": model(_VOCABULARY, unk_token="\x1b[31mred"),
        "no special tokens": {**model({"ab": 0, "cd": 1}), "added_tokens": []},
        "added token without a letter": {"added_tokens": _added(16, "")},
        "added token that is a space": {"added_tokens": _added(16, " ")},
    }
    for number in _HUGE:
        cases[f"id {number}"] = model({**_VOCABULARY, "ab": number})
        cases[f"added id {number}"] = {"added_tokens": _added(number, "zz")}
    return cases


def _other_models() -> dict[str, dict[str, Any]]:
    """Return models of subwords that contradict themselves."""
    piece = {
        "type": "WordPiece",
        "unk_token": "<unk>",
        "continuing_subword_prefix": "##",
        "vocab": _VOCABULARY,
    }
    pairs = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "vocab": _VOCABULARY, "merges": []}
    graph = {"type": "Unigram", "unk_id": 0, "byte_fallback": False}
    scored = [[token, -1.0] for token in _VOCABULARY]
    models = {
        "pieces without an unknown token": {**piece, "unk_token": "[UNK]", "max_input_chars_per_word": 100},
        "pieces of no letters": {**piece, "max_input_chars_per_word": 0},
        "pieces of words of any length": {**piece, "max_input_chars_per_word": 2**63},
        "merge of unknown pieces": {**pairs, "merges": ["x y"]},
        "merge of one piece": {**pairs, "merges": ["ab"]},
        "merge to a missing piece": {**pairs, "merges": ["c c"]},
        "dropout of everything": {**pairs, "dropout": 1.0},
        "dropout of more": {**pairs, "dropout": 7.5},
        "unknown piece is missing": {**pairs, "unk_token": "<none>"},
        "unigram without pieces": {**graph, "vocab": []},
        "unigram with an unknown id beyond its end": {**graph, "vocab": scored, "unk_id": 99},
        "unigram without an unknown id": {**graph, "vocab": scored, "unk_id": None},
        "unigram with scores that are no numbers": {
            **graph,
            "vocab": [[token, None] for token in _VOCABULARY],
        },
        "unigram with an empty piece": {**graph, "vocab": [*scored, ["", 0.0]]},
        "unigram with bytes it does not have": {
            **graph,
            "vocab": scored,
            "byte_fallback": True,
            "unk_id": None,
        },
    }
    return {name: {"model": model} for name, model in models.items()}


def _nested_sequences(depth: int) -> str:
    return '{"type": "Sequence", "decoders": [' * depth + "]}" * depth
