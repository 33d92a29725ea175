"""Tokenizers of encoder-decoder models of Hugging Face transformers.

Where the model numbers the pieces of a SentencePiece model in its own way, the pieces are mapped by name.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from transduce.config import Vocabulary, validate
from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.special_tokens import SOURCE_LANGUAGE, TARGET_LANGUAGE, SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_guard import guarded
from transduce.errors import ArtifactError
from transduce.interop import hugging_face_languages as codes
from transduce.interop.hugging_face import read_object
from transduce.interop.hugging_face_seq2seq_config import token_field

_READY, _PIECES = "tokenizer.json", "sentencepiece.bpe.model"
_VOCABULARY, _TARGET_VOCABULARY, _MERGES = "vocab.json", "target_vocab.json", "merges.txt"
_SOURCE_PIECES, _TARGET_PIECES = "source.spm", "target.spm"
SETTINGS, _SPECIAL = "tokenizer_config.json", "special_tokens_map.json"
TARGET_FOLDER = "target_tokenizer"  # where our exports have the target's tokenizer, if it is another one
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]
# Tokens of languages; the code is in the group. Of m2m_100, __en__ is M2M-100's and eng_Latn is NLLB's.
_LANGUAGE = {
    "marian": re.compile(r">>([\w-]+)<<"),
    "mbart": re.compile(r"([a-z]{2}_[A-Z]{2})"),
    "m2m_100": re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})"),
}


def read_pair(
    folder: Path, fields: Mapping[str, Any], generation: Mapping[str, Any], vocabulary: Vocabulary
) -> TokenizerPair:
    """Return the folder's tokenizers with its special tokens and languages."""
    settings = {**read_object(folder / _SPECIAL), **read_object(folder / SETTINGS)}
    if (folder / _SOURCE_PIECES).exists():
        source, target = _marian_sides(folder, fields, settings, vocabulary)
    else:
        source = target = _one_side(folder, fields, settings, vocabulary.source)
    if (folder / TARGET_FOLDER).exists():
        target = _ready_side(folder / TARGET_FOLDER, vocabulary.target)
    languages = _languages(fields, [source.token_at(token) or "" for token in range(source.size)])
    special = {
        "pad": _name(target, vocabulary.pad),
        "bos": _name(target, vocabulary.bos),
        "eos": _name(target, vocabulary.eos),
        "languages": languages,
        **_frame(folder, fields, settings, languages, target, vocabulary),
    }
    forced = token_field(fields, generation, "forced_bos_token_id")
    if languages:
        special |= _chosen(settings, languages, None if forced is None else _name(target, forced))
    elif forced is not None:
        special["target_prefix"] = [_name(target, forced)]
    return TokenizerPair(source, target, special=validate(SpecialTokens, special, where=str(folder)))


def _frame(
    folder: Path,
    fields: Mapping[str, Any],
    settings: Mapping[str, Any],
    languages: Mapping[str, str],
    target: SideTokenizer,
    vocabulary: Vocabulary,
) -> dict[str, list[str]]:
    """Return the tokens around a source, and before a target."""
    eos, kind = _name(target, vocabulary.eos), fields.get("model_type")
    if kind == "marian" and languages:
        return {"source_prefix": [TARGET_LANGUAGE]}
    if not languages and (folder / _READY).exists():
        with guarded(str(folder / _READY), "fails to encode a text", muted=True):
            return _added_by(load_side_tokenizer(folder / _READY).backend)
    if kind == "marian" or settings.get("tokenizer_class") == "MarianTokenizer":
        return {}
    if not languages:  # BART
        start = _name(target, fields.get("bos_token_id", 0))
        return {"source_prefix": [start], "source_suffix": [eos]}
    # A decoder that starts with a language (mBART for 25 languages) needs no other.
    prefix = [] if _name(target, vocabulary.bos) in languages.values() else [TARGET_LANGUAGE]
    name = str(settings.get("tokenizer_class") or "")
    behind = ("MBart" in name and "50" not in name) or settings.get("legacy_behaviour") is True
    if not name and kind == "mbart":
        behind = "sl_SI" not in languages
    if behind:
        return {"source_suffix": [eos, SOURCE_LANGUAGE], "target_prefix": prefix}
    return {"source_prefix": [SOURCE_LANGUAGE], "source_suffix": [eos], "target_prefix": prefix}


def _added_by(backend: Tokenizer) -> dict[str, list[str]]:
    """Return the tokens that a tokenizer puts around a text."""
    plain, full = (backend.encode("a", add_special_tokens=added).tokens for added in (False, True))
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return {"source_prefix": full[:start], "source_suffix": full[start + len(plain) :]}
    raise ArtifactError("the tokenizer changes a text when it adds special tokens", "use another tokenizer")


def _chosen(settings: Mapping[str, Any], languages: Mapping[str, str], forced: str | None) -> dict[str, str]:
    """Return the languages that the folder's settings choose, or that are the only ones."""
    by_token = {token: code for code, token in languages.items()}
    chosen = {}
    for ours, theirs in (("source_language", "src_lang"), ("target_language", "tgt_lang")):
        code = settings.get(theirs)
        code = by_token.get(str(code), code)
        if code in languages:
            chosen[ours] = str(code)
    if forced in by_token:
        chosen["target_language"] = by_token[str(forced)]
    elif len(languages) == 1:
        chosen["target_language"] = next(iter(languages))
    return chosen


def _languages(fields: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    """Return the codes of the languages that have a token, and the tokens."""
    pattern = _LANGUAGE.get(str(fields.get("model_type")))
    found = ((pattern.fullmatch(token), token) for token in tokens) if pattern else ()
    return {next(filter(None, match.groups())): token for match, token in found if match}


def _marian_sides(
    folder: Path, fields: Mapping[str, Any], settings: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[SideTokenizer, SideTokenizer]:
    separate = settings.get("separate_vocabs") is True
    source = _tokens(folder / _VOCABULARY)
    target = _tokens(folder / _TARGET_VOCABULARY) if separate else source
    first, second = (folder / name for name in (_SOURCE_PIECES, _TARGET_PIECES))
    added = list(_languages(fields, source).values())
    side = _mapped(read_sentencepiece(first), source, vocabulary.source, folder, added)
    other = _mapped(read_sentencepiece(second), target, vocabulary.target, folder)
    is_joint = not separate and first.read_bytes() == second.read_bytes()
    return side, side if is_joint else other


def _one_side(
    folder: Path, fields: Mapping[str, Any], settings: Mapping[str, Any], size: int
) -> SideTokenizer:
    """Return the tokenizer that serves both sides, from whichever files there are."""
    if (folder / _READY).exists():
        return _ready_side(folder, size)
    if (folder / _PIECES).exists():
        backend = read_sentencepiece(folder / _PIECES)
        if (folder / _VOCABULARY).exists():
            added = _m2m_languages(settings)
            return _mapped(backend, [*_tokens(folder / _VOCABULARY), *added], size, folder, added)
        pieces = [backend.id_to_token(number) or "" for number in range(3, backend.get_vocab_size())]
        added = _fairseq_languages(fields, settings)
        return _mapped(backend, [*FAIRSEQ, *pieces, *added, "<mask>"], size, folder, added)
    if (folder / _MERGES).exists():
        with guarded(str(folder), "has no usable tokenizer", muted=True):
            model = models.BPE.from_file(str(folder / _VOCABULARY), str(folder / _MERGES))
        backend = Tokenizer(model)
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([name for name in (*FAIRSEQ, "<mask>") if backend.token_to_id(name)])
        return _mapped(backend, _tokens(folder / _VOCABULARY), size, folder)
    raise ArtifactError(
        f"{folder} has no tokenizer: neither {_SOURCE_PIECES}, {_READY}, {_PIECES} nor {_MERGES}",
        "download all files of the model",
    )


def _ready_side(folder: Path, size: int) -> SideTokenizer:
    """Return the tokenizer of a ``tokenizer.json``, without what it puts around a text."""
    side = load_side_tokenizer(folder / _READY)
    side.backend.post_processor = None
    if side.size == size:
        return SideTokenizer(side.backend, name=str(folder / _READY))
    names = [side.token_at(number) for number in range(side.size)]
    tokens = [name if name is not None else _unused(number) for number, name in enumerate(names)]
    return _mapped(side.backend, tokens, size, folder)


def _m2m_languages(settings: Mapping[str, Any]) -> list[str]:
    known = codes.WMT21 if settings.get("language_codes") == "wmt21" else codes.M2M_100
    return [f"__{code}__" for code in known.split()]


def _fairseq_languages(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return language tokens in the order of their ids: those of the files or, for mBART, the known ones."""
    for name in ("additional_special_tokens", "extra_special_tokens"):
        listed = settings.get(name)
        if isinstance(listed, list) and (found := _languages(fields, list(map(str, listed)))):
            return list(found.values())
    if fields.get("model_type") != "mbart":
        return []
    return (codes.MBART_50 if "50" in str(settings.get("tokenizer_class")) else codes.MBART).split()


def _mapped(
    backend: Tokenizer, tokens: Sequence[str], size: int, folder: Path, special: Sequence[str] = ()
) -> SideTokenizer:
    """Return a tokenizer with the model's ids, of which there may be more than tokens."""
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokens = [*tokens, *(_unused(number) for number in range(len(tokens), size))][:size]
    return SideTokenizer(backend, tokens, name=str(folder))


def _unused(number: int) -> str:
    return f"<unused {number}>"


def _tokens(path: Path) -> list[str]:
    """Return the tokens of a ``vocab.json`` in the order of their ids."""
    if not path.exists():
        raise ArtifactError(f"{path} is missing", "download all files of the model")
    ids = read_object(path)
    if not all(isinstance(number, int) and 0 <= number < 2 * len(ids) + 1000 for number in ids.values()):
        raise ArtifactError(f"{path} does not number its tokens", "copy the folder again")
    names = {number: token for token, number in ids.items()}
    return [names.get(number, _unused(number)) for number in range(max(names, default=-1) + 1)]


def _name(side: SideTokenizer, token: object) -> str:
    """Return the name of a token."""
    name = side.token_at(token) if isinstance(token, int) and 0 <= token < side.size else None
    if name is None:
        raise ArtifactError(f"the tokenizer has no token {token!r}", "copy the folder again")
    return name
