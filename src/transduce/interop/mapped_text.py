"""Vocabularies, tokenizers and special tokens of people's own models, as a mapping file gives them."""

from pathlib import Path

from transduce.config import Vocabulary
from transduce.data.special_tokens import SpecialTokens
from transduce.data.subword_nmt import word_tokenizer
from transduce.data.token_map import UNKNOWN
from transduce.data.tokenizer import SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.mapping_file import TextRules
from transduce.interop.vocabulary_file import read_vocabulary

WORDS = "words"


def vocabularies(rules: TextRules, folder: Path) -> tuple[list[str] | None, list[str] | None]:
    """Read the tokens of source and target, or of their tokenizers; ``None`` if there are none."""
    sides = [
        (rules.source_vocabulary, rules.source_tokenizer),
        (
            rules.target_vocabulary or rules.source_vocabulary,
            rules.target_tokenizer or rules.source_tokenizer,
        ),
    ]
    source, target = (_tokens(folder, *side) for side in sides)
    if (source is None) != (target is None):
        raise ConfigError("only one side has a vocabulary", "give source_vocabulary and target_vocabulary")
    return source, target


def _tokens(folder: Path, vocabulary: str | None, tokenizer: str) -> list[str] | None:
    if vocabulary is not None:
        return read_vocabulary(folder / vocabulary)
    if tokenizer == WORDS:
        return None
    side = load_side_tokenizer(folder / tokenizer)
    return [side.token_at(number) or f"unused {number}" for number in range(side.size)]


def special_ids(rules: TextRules, target: list[str] | None) -> tuple[int, int, int]:
    """Return the ids of pad, bos and eos."""
    pad, bos, eos = (_id(name, value, target) for name, value in _named(rules))
    return pad, bos, eos


def _named(rules: TextRules) -> list[tuple[str, str | int]]:
    return [("pad", rules.pad), ("bos", rules.bos), ("eos", rules.eos)]


def _id(name: str, value: str | int, tokens: list[str] | None) -> int:
    if isinstance(value, int):
        if tokens is not None and value >= len(tokens):
            raise ConfigError(f"{name} is token {value}, but there are {len(tokens)}", "correct it in [text]")
        return value
    if tokens is None:
        raise ConfigError(f"{name} = {value!r} needs a vocabulary", "give its id, or a target_vocabulary")
    if value not in tokens:
        raise ConfigError(f"the target vocabulary has no token {value!r}", f"correct {name} in [text]")
    return tokens.index(value)


def mapped_tokenizer(
    rules: TextRules, folder: Path, source: list[str] | None, target: list[str] | None, sizes: Vocabulary
) -> TokenizerPair | None:
    """Return the tokenizers of both sides; ``None`` without vocabularies."""
    if source is None or target is None:
        return None
    for side, tokens, size in (("source", source, sizes.source), ("target", target, sizes.target)):
        if len(tokens) != size:
            raise ArtifactError(
                f"the {side} vocabulary has {len(tokens)} tokens, but the embedding has {size}",
                "give the vocabulary that the model was trained with",
            )
    names = [target[_id(name, value, target)] for name, value in _named(rules)]
    special = SpecialTokens(
        pad=names[0],
        bos=names[1],
        eos=names[2],
        source_prefix=rules.source_prefix,
        source_suffix=rules.source_suffix,
    )
    first = _side(rules, folder, source, rules.source_vocabulary, rules.source_tokenizer, names)
    kinds = (
        rules.target_vocabulary or rules.source_vocabulary,
        rules.target_tokenizer or rules.source_tokenizer,
    )
    if source == target and kinds[1] == rules.source_tokenizer:
        return TokenizerPair(first, first, special=special)
    return TokenizerPair(first, _side(rules, folder, target, *kinds, names), special=special)


def _side(
    rules: TextRules,
    folder: Path,
    tokens: list[str],
    vocabulary: str | None,
    tokenizer: str,
    special: list[str],
) -> SideTokenizer:
    if tokenizer != WORDS:
        side = load_side_tokenizer(folder / tokenizer)
        return side if vocabulary is None else SideTokenizer(side.backend, tokens, name=tokenizer)
    unknown = rules.unknown or next((name for name in UNKNOWN if name in tokens), None)
    if unknown is None or unknown not in tokens:
        raise ConfigError(
            "the vocabulary has no token for unknown words", "set unknown in [text] to the name of one"
        )
    names = tuple(dict.fromkeys((*special, unknown)))
    return word_tokenizer(tokens, lowercase=rules.lowercase, special=names, unknown=unknown)
