"""Vocabularies, special tokens and tokenizers of CTranslate2 models.

A vocabulary without a padding token gets one, whose embedding is zero and whose logit is far below all
others. It is also what a decoder reads first that starts from a zero embedding.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.sentencepiece_file import read_model
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import JOINT, SOURCE, SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError
from transduce.files import read_json, read_text
from transduce.interop.added_padding import PAD, add_logit, add_row, add_token, without_token
from transduce.interop.ctranslate2_file import CTranslate2File
from transduce.interop.ctranslate2_table import EMBEDDINGS, OUTPUT, OUTPUT_BIAS
from transduce.interop.vocabulary_tokenizer import lacks_tokens, vocabulary_tokenizer

SIDES = ("source", "target")
COPY = "copy the model again"
REMEDY = "convert the original model instead, or use the ctranslate2 package"
_SENTENCEPIECE = "sentencepiece.model"
_PADDING = ("<pad>", "<blank>", "[PAD]", "<PAD>")
_LARGEST_VOCABULARY = 1 << 26  # bytes


def read_vocabulary(folder: Path, side: str) -> list[str]:
    """Read the tokens of one side, in JSON or, in older models, one per line."""
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        if (folder / f"{name}.json").exists():
            tokens = read_json(folder / f"{name}.json", limit=_LARGEST_VOCABULARY, remedy=COPY)
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise ArtifactError(f"{folder / name}.json is not a list of tokens", COPY)
            return tokens
        path = folder / f"{name}.txt"
        if path.exists():
            return read_text(path, limit=_LARGEST_VOCABULARY, remedy=COPY).rstrip("\n").split("\n")
    raise ArtifactError(f"{folder} has no vocabulary: shared_vocabulary.json is missing", COPY)


def option(file: CTranslate2File, name: str, default: float) -> float:
    """Return the value of an option; ``default`` if the file does not have it."""
    value = file.variables.get(name)
    return default if value is None or value.dim() else float(value)


def special_tokens(
    file: CTranslate2File,
    fields: Mapping[str, Any],
    vocabularies: list[list[str]],
    state: dict[str, Tensor],
) -> tuple[list[list[str]], SpecialTokens]:
    """Return both sides' tokens and how sequences begin and end; add a padding token where there is none."""
    eos = str(fields.get("eos_token") or "</s>")
    start = str(fields.get("decoder_start_token") or fields.get("bos_token") or "<s>")
    from_zero = bool(option(file, "decoder/start_from_zero_embedding", 0))
    known = [token for token in _PADDING if _has_one_id(token, vocabularies)]
    if known and not from_zero:
        pad = known[0]
    else:
        pad = next(name for name in (PAD, "<padding>") if not any(name in tokens for tokens in vocabularies))
        place, vocabularies = add_token(vocabularies, pad)
        add_padding(state, place)
    for side, tokens in zip(SIDES, vocabularies, strict=True):
        if eos not in tokens:
            raise ArtifactError(f"the {side} vocabulary of {file.path.parent} has no {eos}", REMEDY)
    bos = pad if from_zero else start
    if bos not in vocabularies[1]:
        raise ArtifactError(f"the target vocabulary of {file.path.parent} has no {bos}", REMEDY)
    prefix = [str(fields.get("bos_token") or "<s>")] if fields.get("add_source_bos") else []
    suffix = [eos] if fields.get("add_source_eos", True) else []
    special = SpecialTokens(pad=pad, bos=bos, eos=eos, source_prefix=prefix, source_suffix=suffix)
    return vocabularies, special


def _has_one_id(token: str, vocabularies: list[list[str]]) -> bool:
    """Return whether a token is in all vocabularies, at the same place."""
    return all(
        token in tokens and tokens.index(token) == vocabularies[0].index(token) for tokens in vocabularies
    )


def add_padding(state: dict[str, Tensor], place: int) -> None:
    """Add a token with an embedding of zeros, which is never predicted."""
    for name in EMBEDDINGS:
        state[name] = add_row(state[name], place)
    output = state[OUTPUT]
    state[OUTPUT_BIAS] = add_logit(state.get(OUTPUT_BIAS, output.new_zeros(len(output) - 1)), place)


def _sentencepiece(folders: list[Path], side: str) -> Path | None:
    """Return the SentencePiece model of one side, which may be that of both."""
    candidates = (_SENTENCEPIECE, f"{side}.spm", f"{side}.model", "sentencepiece.bpe.model", "spm.model")
    found = (folder / name for folder in folders for name in candidates)
    return next((path for path in found if path.is_file()), None)


def read_tokenizer(folders: list[Path], tokens: list[list[str]], special: SpecialTokens) -> TokenizerPair:
    """Read the SentencePiece models beside the weights: one for both sides, or one each."""
    sides: list[tuple[Path, list[str]]] = []
    for side, names in zip(SIDES, tokens, strict=True):
        path = _sentencepiece(folders, side)
        if path is None:
            raise ArtifactError(
                f"{folders[0]} has no {_SENTENCEPIECE}, source.spm or target.spm",
                "copy the SentencePiece model that belongs to it into the folder",
            )
        sides.append((path, names))
    if sides[0] == sides[1]:
        both = _side(*sides[0])
        return TokenizerPair(both, both, special=special)
    source, target = (_side(*each) for each in sides)
    return TokenizerPair(source, target, special=special)


def other_target(folders: list[Path], tokenizer: TokenizerPair) -> SideTokenizer | None:
    """Return a tokenizer for targets from the vocabulary, if the SentencePiece model may be the source's.

    It may if it serves both sides, but lacks many of the target's tokens.
    """
    path, target = _sentencepiece(folders, "target"), tokenizer.target
    if path is None or path != _sentencepiece(folders, "source") or target.map is None:
        return None
    tokens, ids, pieces = target.map.tokens, tokenizer.vocabulary, read_model(path)
    if not lacks_tokens(pieces, tokens):
        return None
    special = {tokens[token] for token in (ids.pad, ids.bos, ids.eos)}
    name = f"the vocabulary beside {path}"
    return SideTokenizer(vocabulary_tokenizer(pieces, tokens, special, name), tokens, name=name)


def own_tokenizer(folders: list[Path], vocabularies: list[list[str]]) -> TokenizerPair | None:
    """Read the tokenizer that an export of ours wrote beside the weights; ``None`` if there is none.

    A SentencePiece model is preferred. A tokenizer that does not fit the vocabularies is refused.
    """
    if any(_sentencepiece(folders, side) for side in SIDES):
        return None
    folder = next((each for each in folders if (each / JOINT).exists() or (each / SOURCE).exists()), None)
    if folder is None:
        return None
    found = TokenizerPair.load(folder)
    if vocabularies not in (tokens_of(found), tokens_of(found, without=found.vocabulary.pad)):
        raise ArtifactError(f"the tokenizer in {folder} does not fit the model's vocabulary", COPY)
    return found


def tokens_of(tokenizer: TokenizerPair, without: int | None = None) -> list[list[str]]:
    """Return the tokens of both sides, as an export names them; an added padding token can be left out."""
    sides = (tokenizer.source, tokenizer.target)
    return [
        without_token([side.token_at(n) or f"<{n}>" for n in range(side.size)], without) for side in sides
    ]


def _side(path: Path, tokens: list[str]) -> SideTokenizer:
    return SideTokenizer(read_sentencepiece(path), tokens, name=str(path))
