"""Find the files beside a checkpoint that say how its text is cut into tokens, and read them.

The tokens of the vocabulary say which kind of file is needed:

- tokens with ``▁``: a SentencePiece model, any ``*.model`` or ``*.spm``;
- tokens that end in ``@@``: BPE codes of subword-nmt or fastBPE: ``*.bpe``, ``bpe``, or a name with ``code``,
  ``codes``, ``bpecode`` or ``bpecodes`` in it, between dots, dashes or underscores;
- others: such a file if there is one, else text is split at white space.

A file that the options name is preferred. Of several, a side takes the one whose name has its language or one
of the words src, source (trg, tgt, target) in it, else one that has no word of the other side in it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from transduce.config import Vocabulary
from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.special_tokens import SpecialTokens
from transduce.data.subword_nmt import CONTINUED, bpe_tokenizer, read_bpe_codes, word_tokenizer
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError, DataError

SOURCE, TARGET = ("src", "source"), ("trg", "tgt", "target")
SPACE = "▁"
_JOINER = "￭"  # pyonmttok's
_CODES = re.compile(r"codes?\d*|bpecodes?\d*")
_BPE_NOTE = "text is split at spaces: give it tokenized, and lower-cased, as it was in training"


class Side(NamedTuple):
    """What is known about one side's text."""

    tokens: Sequence[str]  # in the order of their ids
    words: tuple[str, ...]  # that the names of its files may have in them: its language, src, …
    named: str | None = None  # by the options: a file, of which only the name counts
    lowercase: bool = False
    characters: bool = False  # whether text is split into characters
    unknown: str = "<unk>"


def tokenizer_of(
    folder: Path, source: Side, target: Side, special: SpecialTokens, sizes: Vocabulary
) -> tuple[TokenizerPair, tuple[str, ...]]:
    """Return the tokenizers of both sides, which are one if they are equal, and notes for the user.

    ``sizes`` are those of the model's embeddings.
    """
    for side, size in ((source, sizes.source), (target, sizes.target)):
        if len(side.tokens) != size:
            raise ArtifactError(
                f"the {side.words[-1]} vocabulary of {folder} has {len(side.tokens)} tokens, but the "
                f"embedding has {size}",
                "give the vocabularies that the model was trained with",
            )
    found = {side.words: _find(folder, side, other) for side, other in ((source, target), (target, source))}
    first = _tokenizer(source, found[source.words], special)
    same = list(source.tokens) == list(target.tokens) and source[2:] == target[2:]
    same = same and found[source.words] == found[target.words]
    second = first if same else _tokenizer(target, found[target.words], special)
    is_pieces = all(path is not None and _is_sentencepiece(path) for path in found.values())
    return TokenizerPair(first, second, special=special), () if is_pieces else (_BPE_NOTE,)


def special_ids(tokens: Sequence[str], special: SpecialTokens, where: Path) -> tuple[int, int, int]:
    """Return the ids of pad, bos and eos in a target vocabulary."""
    for name in (special.pad, special.bos, special.eos):
        if name not in tokens:
            raise ArtifactError(f"the target vocabulary of {where} has no {name}", "give a complete model")
    return tokens.index(special.pad), tokens.index(special.bos), tokens.index(special.eos)


def _find(folder: Path, side: Side, other: Side) -> Path | None:
    """Return the file that says how a side's text is cut; ``None`` if text is split at white space."""
    if side.characters:
        return None
    if any(_JOINER in token for token in side.tokens):
        raise ArtifactError(
            f"the vocabulary has tokens with {_JOINER}: pyonmttok's tokenizer, which is not supported",
            "give a model that was trained on text in SentencePiece pieces or BPE segments",
        )
    is_pieces = any(SPACE in token for token in side.tokens)
    is_bpe = not is_pieces and any(token.endswith(CONTINUED) for token in side.tokens)
    if side.named and (named := folder / re.split(r"[/\\]", side.named)[-1]).is_file():
        return named
    models = [path for path in _files(folder) if _is_sentencepiece(path)]
    codes = [path for path in _files(folder) if _is_codes(path)]
    candidates = models if is_pieces else codes if is_bpe else codes or models
    found = _chosen(candidates, side, other)
    if found is None and (is_pieces or is_bpe):
        kind = "a SentencePiece model (*.model, *.spm)" if is_pieces else "BPE codes (bpe.codes)"
        raise ArtifactError(
            f"{folder} has no {kind} for the {side.words[-1]} tokens, such as {_example(side, is_pieces)!r}",
            f"put the file there{f': {side.named}' if side.named else ''}",
        )
    return found


def _example(side: Side, is_pieces: bool) -> str:
    return next(token for token in side.tokens if (SPACE in token if is_pieces else CONTINUED in token))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _parts(path: Path) -> list[str]:
    return re.split(r"[._-]", path.name.lower())


def _is_sentencepiece(path: Path) -> bool:
    return path.suffix in (".model", ".spm")


def _is_codes(path: Path) -> bool:
    if _is_sentencepiece(path):
        return False
    return path.name == "bpe" or path.suffix == ".bpe" or any(map(_CODES.fullmatch, _parts(path)))


def _chosen(candidates: list[Path], side: Side, other: Side) -> Path | None:
    mine = [path for path in candidates if set(side.words) & set(_parts(path))]
    both = [path for path in mine if set(other.words) & set(_parts(path))]
    neutral = [path for path in candidates if not set(other.words) & set(_parts(path))]
    for chosen in ([path for path in mine if path not in both], both, neutral):
        if len(chosen) > 1:
            raise ArtifactError(
                f"{chosen[0].parent} has {chosen[0].name} and {chosen[1].name}, of which only one can be for "
                f"the {side.words[-1]} text",
                "move the other file away",
            )
        if chosen:
            return chosen[0]
    return None


def _tokenizer(side: Side, path: Path | None, special: SpecialTokens) -> SideTokenizer:
    names = tuple(dict.fromkeys((special.pad, special.bos, special.eos, side.unknown)))
    if side.characters:
        return _characters(side, names)
    if path is None:
        return word_tokenizer(side.tokens, lowercase=side.lowercase, special=names, unknown=side.unknown)
    if not _is_sentencepiece(path):
        return bpe_tokenizer(
            read_bpe_codes(path),
            side.tokens,
            lowercase=side.lowercase,
            special=names,
            unknown=side.unknown,
        )
    backend = read_sentencepiece(path)
    if side.lowercase:
        steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(steps)
    ordinary = set(side.tokens) - set(names)
    if 2 * len(ordinary & set(backend.get_vocab())) < len(ordinary):
        raise DataError(
            f"{path} has less than half of the pieces in the {side.words[-1]} vocabulary",
            "put the SentencePiece model that the model was trained with there",
        )
    return SideTokenizer(backend, side.tokens, name=str(path))


def _characters(side: Side, special: tuple[str, ...]) -> SideTokenizer:
    """Return a tokenizer of characters, in which a space is ``▁``."""
    names = {token: number for number, token in enumerate(side.tokens)}
    if len(names) < len(side.tokens) or side.unknown not in names:
        raise DataError("the vocabulary has two equal tokens, or no unknown one", "copy the vocabulary again")
    backend = Tokenizer(models.WordLevel(names, unk_token=side.unknown))
    lower = [normalizers.Lowercase()] if side.lowercase else []
    backend.normalizer = normalizers.Sequence([*lower, normalizers.Replace(" ", SPACE)])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?m:.)"), "isolated")
    backend.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(SPACE, " ")])
    backend.add_special_tokens([token for token in special if token in names])
    return SideTokenizer(backend)
