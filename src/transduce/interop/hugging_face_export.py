"""Write folders that ``from_pretrained`` of Hugging Face transformers loads."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from transduce.config import BERTConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, ConfigError, reason_of, remedy_for_writing
from transduce.files import user_path
from transduce.interop import bert, gpt2, llama, vit
from transduce.interop.hugging_face_seq2seq import GENERATION
from transduce.interop.hugging_face_seq2seq_config import their_fields
from transduce.interop.hugging_face_seq2seq_weights import stored_seq2seq
from transduce.interop.hugging_face_tokenizer_export import write_tokenizer
from transduce.interop.hugging_face_weights import CONFIG, WEIGHTS
from transduce.models.bert import BERT
from transduce.models.gpt import GPT
from transduce.models.protocol import Model
from transduce.models.transformer import Transformer
from transduce.models.vit import ViT

_COPIED = ("lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
# masked_head, pooler, classes → class
_BERT_CLASSES = {
    (True, False, False): "BertForMaskedLM",
    (True, True, True): "BertForPreTraining",
    (False, True, True): "BertForSequenceClassification",
    (False, True, False): "BertModel",
    (False, False, False): "BertModel",
}


class Exported(NamedTuple):
    """The content of a folder, apart from its tokenizer."""

    fields: dict[str, Any]  # of config.json
    tensors: dict[str, Tensor]


def export_hugging_face(
    model: Model, tokenizer: TokenizerPair | None, folder: str | Path, *, positions: int | None = None
) -> None:
    """Write a model and its tokenizer to a folder, which is made if it is not there.

    What the classes of transformers cannot express is refused before anything is written. Sinusoidal
    positions are limited there: to ``positions`` or, if that is not given, to the setting ``max_length``.
    """
    folder = user_path(folder)
    exported = _exported(model, positions)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / CONFIG, {**exported.fields, "dtype": "float32"})
        save_file(exported.tensors, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)
        if isinstance(model, Transformer):
            _write_json(folder / GENERATION, _generation(model, tokenizer, exported.fields))
        if tokenizer is not None:
            write_tokenizer(tokenizer, folder, exported.fields, is_source=isinstance(model, Transformer))
    except (OSError, SafetensorError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"cannot write {folder}: {reason}", remedy_for_writing(error)) from error


def _exported(model: Model, positions: int | None) -> Exported:
    if isinstance(model, Transformer):
        fields = their_fields(model.config, model.vocabulary, positions=positions)
        return Exported(fields, stored_seq2seq(model))
    if isinstance(model, GPT) and model.config.positions == "rotary":
        return Exported(
            llama.their_fields(model.config, model.vocabulary), _stored(llama.export_llama(model))
        )
    if isinstance(model, GPT):
        fields = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
        fields |= gpt2.their_fields(model.config, model.vocabulary)
        return Exported(fields, _stored(gpt2.export_gpt2(model)))
    if isinstance(model, BERT):
        fields = {"model_type": "bert", "architectures": [_bert_class(model.config)]}
        fields |= {
            name: value
            for name, value in bert.their_fields(model.config, model.vocabulary).items()
            if value is not None
        }
        return Exported(fields, _stored(bert.export_bert(model)))
    if isinstance(model, ViT):
        fields = vit.their_fields(model.config) | {"architectures": ["ViTForImageClassification"]}
        return Exported(fields, _stored(vit.export_vit(model)))
    raise ConfigError(f"transformers has no model of family {model.config.family!r}", "use another format")


def _bert_class(config: BERTConfig) -> str:
    if config.masked_head and config.activation != "gelu":
        raise ConfigError(
            f"the head for masked tokens of transformers has activation = {config.activation!r}, ours gelu",
            "use a model with activation = 'gelu'",
        )
    heads = config.masked_head, config.pooler, bool(config.classes)
    if heads not in _BERT_CLASSES or (heads == (True, True, True) and len(config.classes) != 2):
        raise ConfigError(
            f"no BERT class of transformers has masked_head = {config.masked_head}, pooler = {config.pooler} "
            f"and {len(config.classes)} classes",
            "use another format",
        )
    return _BERT_CLASSES[heads]


def _stored(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what a file stores: no copies, and no tensors that share memory."""
    return {
        name: tensor.float().contiguous().clone() for name, tensor in state.items() if name not in _COPIED
    }


def _generation(
    model: Transformer, tokenizer: TokenizerPair | None, fields: dict[str, Any]
) -> dict[str, Any]:
    vocabulary = model.vocabulary
    prefix = [] if tokenizer is None else _target_prefix(tokenizer)
    return {
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "decoder_start_token_id": vocabulary.bos,
        **({"forced_bos_token_id": prefix[0]} if len(prefix) == 1 else {}),
        "suppress_tokens": sorted({vocabulary.pad, vocabulary.bos} - {vocabulary.eos}) or None,
        "num_beams": 4,
        "max_length": min(512, fields["max_position_embeddings"]),
    }


def _target_prefix(tokenizer: TokenizerPair) -> list[int]:
    """Return the prefix, unless it is a language that is not chosen yet."""
    special = tokenizer.special
    chosen = special is None or special.target_language or not special.languages
    return tokenizer.target_prefix if chosen else []


def _write_json(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
