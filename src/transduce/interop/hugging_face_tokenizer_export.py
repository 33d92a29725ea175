"""Write tokenizers that ``AutoTokenizer`` of Hugging Face transformers loads, with the model's ids.

Where the model numbers the pieces of a SentencePiece model in its own way, that model is written together
with the model's vocabulary, as Marian and M2M-100 have it there.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from transduce.data.sentencepiece_writer import write_sentencepiece
from transduce.data.special_tokens import SOURCE_LANGUAGE, TARGET_LANGUAGE
from transduce.data.token_map import UNKNOWN
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import DataError
from transduce.interop.hugging_face_languages import M2M_100
from transduce.interop.hugging_face_tokens import FAIRSEQ, TARGET_FOLDER
from transduce.interop.renumbered_tokenizer import renumbered


def write_tokenizer(
    tokenizer: TokenizerPair, folder: Path, fields: Mapping[str, Any], *, is_source: bool
) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``; ``fields`` are those of ``config.json``.

    If ``is_source``, the tokenizer adds what stands around a source. A target's tokenizer of its own goes to
    a folder inside.
    """
    if not all(_keeps_ids(side) for side in (tokenizer.source, tokenizer.target)) and _write_pieces(
        tokenizer, folder, fields, is_source=is_source
    ):
        return
    chosen_there = _of_languages(tokenizer, fields)  # where a class adds the tokens of languages itself
    is_framed = is_source and not chosen_there
    prefix, suffix = (tokenizer.source_prefix, tokenizer.source_suffix) if is_framed else ([], [])
    _write_side(tokenizer, tokenizer.source, folder, (prefix, suffix), fields)
    if not tokenizer.joint and is_source:
        inner = folder / TARGET_FOLDER
        inner.mkdir(exist_ok=True)
        frame = tokenizer.target_prefix, [tokenizer.vocabulary.eos]
        _write_side(tokenizer, tokenizer.target, inner, frame, fields)


def _write_side(
    tokenizer: TokenizerPair,
    side: SideTokenizer,
    folder: Path,
    frame: tuple[Sequence[int], Sequence[int]],
    fields: Mapping[str, Any],
) -> None:
    backend = Tokenizer.from_str(side.backend.to_str()) if _keeps_ids(side) else None
    prefix, suffix = ([_name(side, token) for token in tokens] for tokens in frame)
    if backend is None:
        vocabulary = tokenizer.vocabulary
        named = (_name(side, token) for token in (vocabulary.pad, vocabulary.bos, vocabulary.eos))
        backend = renumbered(side, {*named, *prefix, *suffix})
    if prefix or suffix:
        around = {name: _id(side, name) for name in (*prefix, *suffix)}
        backend.post_processor = processors.TemplateProcessing(
            single=[*prefix, "$A", *suffix],
            pair=[*prefix, "$A", "$B", *suffix],
            special_tokens=list(around.items()),
        )
    (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), encoding="utf-8")
    settings = _settings(tokenizer, side, fields) | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _name(side, tokenizer.vocabulary.bos),
        # Ours read special tokens in a text as ordinary characters.
        "split_special_tokens": bool(side.backend.encode_special_tokens),
    }
    if side.mask_id is not None:
        settings["mask_token"] = _name(side, side.mask_id)
    settings |= _of_languages(tokenizer, fields)
    _write_json(folder / "tokenizer_config.json", settings)


def _settings(tokenizer: TokenizerPair, side: SideTokenizer, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``tokenizer_config.json`` says of every tokenizer."""
    unknown = next((name for name in UNKNOWN if side.id_of(name) is not None), None)
    limit = next(fields[name] for name in ("max_position_embeddings", "n_positions") if name in fields)
    return {
        "pad_token": _name(side, tokenizer.vocabulary.pad),
        "eos_token": _name(side, tokenizer.vocabulary.eos),
        **({} if unknown is None else {"unk_token": unknown}),
        "model_max_length": limit,
        **_direction(tokenizer),
        "clean_up_tokenization_spaces": False,
    }


def _of_languages(tokenizer: TokenizerPair, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class of a tokenizer with languages, and its settings; nothing if there is none."""
    special = tokenizer.special
    if special is None or not special.languages:
        return {}
    behind = SOURCE_LANGUAGE in (special.source_suffix or [])
    classes = {"mbart": "MBartTokenizer" if behind else "MBart50Tokenizer", "m2m_100": "NllbTokenizer"}
    name = classes.get(fields["model_type"])
    if name is None:
        return {}
    listed = {"tokenizer_class": name, "extra_special_tokens": list(special.languages.values())}
    return listed | _chosen(tokenizer) | ({"legacy_behaviour": behind} if name == "NllbTokenizer" else {})


def _keeps_ids(side: SideTokenizer) -> bool:
    """Return whether the library's tokenizer has the model's ids."""
    if side.map is None:
        return True
    known = side.backend.get_vocab(with_added_tokens=True).items()
    return all(side.map.ids.get(token) == number for token, number in known)


def _write_pieces(
    tokenizer: TokenizerPair, folder: Path, fields: Mapping[str, Any], *, is_source: bool
) -> bool:
    """Write SentencePiece models, and the model's tokens with their ids.

    Return whether that is possible; other tokenizers are written as ``tokenizer.json``, renumbered.
    """
    source, target = _tokens(tokenizer.source), _tokens(tokenizer.target)
    settings = _settings(tokenizer, tokenizer.source, fields)
    languages = {} if tokenizer.special is None else tokenizer.special.languages
    if fields["model_type"] == "mbart" and source[: len(FAIRSEQ)] == FAIRSEQ:
        write_sentencepiece(tokenizer.source.backend, folder / "sentencepiece.bpe.model")
        settings |= _of_languages(tokenizer, fields)
    elif is_source and _is_framed_as_marian(tokenizer):
        try:
            write_sentencepiece(tokenizer.source.backend, folder / "source.spm")
            write_sentencepiece(tokenizer.target.backend, folder / "target.spm")
        except DataError:
            (folder / "source.spm").unlink(missing_ok=True)
            return False
        settings |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": source != target}
        if source != target:
            _write_json(folder / "target_vocab.json", _numbered(target))
    elif fields["model_type"] == "m2m_100" and tokenizer.joint and "__en__" in languages.values():
        write_sentencepiece(tokenizer.source.backend, folder / "sentencepiece.bpe.model")
        known = "wmt21" if len(languages) < len(M2M_100.split()) else "m2m100"
        settings |= {"tokenizer_class": "M2M100Tokenizer", "language_codes": known}
        settings |= _chosen(tokenizer)
        source = source[: min(map(source.index, languages.values()))]
    else:
        return False
    if not (folder / "sentencepiece.bpe.model").exists() or fields["model_type"] == "m2m_100":
        _write_json(folder / "vocab.json", _numbered(source))
    _write_json(folder / "tokenizer_config.json", settings)
    return True


def _is_framed_as_marian(tokenizer: TokenizerPair) -> bool:
    """Return whether a source ends with ``eos`` and begins with nothing but a language."""
    special = tokenizer.special
    if special is None:
        return True
    ends = special.source_suffix is None or special.source_suffix == [special.eos]
    return ends and special.source_prefix in ([], [TARGET_LANGUAGE]) and not special.target_prefix


def _direction(tokenizer: TokenizerPair) -> dict[str, str]:
    """Return the languages that no token tells, as Marian's tokenizers have them."""
    special, found = tokenizer.special, {}
    if special is not None and special.source_language and not special.tells(SOURCE_LANGUAGE):
        found["source_lang"] = special.source_language
    if special is not None and special.target_language and not special.tells(TARGET_LANGUAGE):
        found["target_lang"] = special.target_language
    return found


def _chosen(tokenizer: TokenizerPair) -> dict[str, str]:
    """Return the languages that are chosen."""
    special = tokenizer.special
    found = (
        {} if special is None else {"src_lang": special.source_language, "tgt_lang": special.target_language}
    )
    return {name: code for name, code in found.items() if code is not None}


def _tokens(side: SideTokenizer) -> list[str]:
    return [_name(side, token) for token in range(side.size)]


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _name(side: SideTokenizer, token: int) -> str:
    return side.token_at(token) or ""


def _id(side: SideTokenizer, name: str) -> int:
    number = side.id_of(name)
    assert number is not None  # noqa: S101
    return number
