"""Write tokenizers that ``AutoTokenizer`` of Hugging Face transformers loads, with the model's ids."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from transduce.data.token_map import UNKNOWN
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ConfigError
from transduce.interop.hugging_face_tokens import TARGET_FOLDER


def write_tokenizer(
    tokenizer: TokenizerPair, folder: Path, fields: Mapping[str, Any], *, is_source: bool
) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``; ``fields`` are those of ``config.json``.

    If ``is_source``, the tokenizer adds what stands around a source. A target's tokenizer of its own goes to
    a folder inside.
    """
    prefix, suffix = (tokenizer.source_prefix, tokenizer.source_suffix) if is_source else ([], [])
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
    if side.map is not None:
        raise ConfigError(
            "the model numbers its tokens differently from its tokenizer", "export it to another format"
        )
    backend = Tokenizer.from_str(side.backend.to_str())
    prefix, suffix = ([_name(side, token) for token in tokens] for tokens in frame)
    if prefix or suffix:
        around = {name: _id(side, name) for name in (*prefix, *suffix)}
        backend.post_processor = processors.TemplateProcessing(
            single=[*prefix, "$A", *suffix],
            pair=[*prefix, "$A", "$B", *suffix],
            special_tokens=list(around.items()),
        )
    (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), encoding="utf-8")
    vocabulary = tokenizer.vocabulary
    names = {"pad_token": vocabulary.pad, "bos_token": vocabulary.bos, "eos_token": vocabulary.eos}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: _name(side, token) for name, token in names.items()},
        "model_max_length": next(
            fields[name] for name in ("max_position_embeddings", "n_positions") if name in fields
        ),
        "clean_up_tokenization_spaces": False,
        # Ours read special tokens in a text as ordinary characters.
        "split_special_tokens": bool(side.backend.encode_special_tokens),
    }
    unknown = next((name for name in UNKNOWN if side.id_of(name) is not None), None)
    settings |= {} if unknown is None else {"unk_token": unknown}
    mask = None if side.mask_id is None else _name(side, side.mask_id)
    settings |= {} if mask is None else {"mask_token": mask}
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _name(side: SideTokenizer, token: int) -> str:
    return side.token_at(token) or ""


def _id(side: SideTokenizer, name: str) -> int:
    number = side.id_of(name)
    assert number is not None  # noqa: S101
    return number
