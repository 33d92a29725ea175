"""Import from and export to the BERT models of Hugging Face transformers.

The class of a model follows from its tensors: ``BertModel`` has a pooler, ``BertForMaskedLM`` the head for
masked tokens, ``BertForPreTraining`` both and two classes, ``BertForSequenceClassification`` the pooler and
any number of classes.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import BERTConfig, Vocabulary, validate
from transduce.errors import ArtifactError
from transduce.interop.hugging_face import (
    TOKENIZERS,
    activation,
    read_saved,
    read_side,
    require,
    require_norm,
    special_token,
    their_activation,
)
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.bert import BERT
from transduce.models.build import build

# ours → theirs, inside a layer; several of theirs are concatenated
_LAYER = {
    "self_attention.query_key_value.": [
        "attention.self.query.",
        "attention.self.key.",
        "attention.self.value.",
    ],
    "self_attention.output.": ["attention.output.dense."],
    "around_self_attention.norm.": ["attention.output.LayerNorm."],
    "feed_forward.inner.": ["intermediate.dense."],
    "feed_forward.outer.": ["output.dense."],
    "around_feed_forward.norm.": ["output.LayerNorm."],
}
_BODY, _HEAD = "bert.", "cls.predictions."
_TOKENS = f"{_BODY}embeddings.word_embeddings.weight"
_BIAS = f"{_HEAD}bias"
_COPIES = {f"{_HEAD}decoder.weight": _TOKENS, f"{_HEAD}decoder.bias": _BIAS}
_NEXT, _CLASSIFIER = "cls.seq_relationship.", "classifier."
_COMPUTED = f"{_BODY}embeddings.position_ids"  # in older files
# Names in the first published files → today's names
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def load_bert(folder: str | Path) -> BERT:
    """Load the model of a folder with ``config.json`` and ``model.safetensors``, in evaluation mode.

    The folder's tokenizer says which tokens are [CLS] and [SEP].
    """
    fields, state = read_saved(folder, "bert")
    state = _named(state)
    model = build(our_config(fields, state), our_vocabulary(fields, folder))
    import_bert(model, state)
    return model.eval()


def our_config(fields: Mapping[str, Any], state: Mapping[str, Tensor]) -> BERTConfig:
    """Return the configuration that corresponds to the fields of their ``BertConfig`` and to the tensors."""
    require(
        fields,
        {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
        "bert",
    )
    if _BIAS in state:  # their head has the activation of the layers; ours always has gelu
        require(fields, {"hidden_act": "gelu"}, "bert")
    labels = fields.get("id2label") or {}
    classes = ["next", "random"] if f"{_NEXT}weight" in state else []
    if f"{_CLASSIFIER}weight" in state:
        count = len(state[f"{_CLASSIFIER}weight"])
        classes = [str(labels.get(str(number), f"LABEL_{number}")) for number in range(count)]
    data = {
        "layers": fields["num_hidden_layers"],
        "d_model": fields["hidden_size"],
        "d_ff": fields["intermediate_size"],
        "heads": fields["num_attention_heads"],
        "dropout": fields.get("hidden_dropout_prob", 0.1),
        "attention_dropout": fields.get("attention_probs_dropout_prob", 0.1),
        "activation": activation(fields, "hidden_act", "gelu"),
        "norm_epsilon": fields.get("layer_norm_eps", 1e-12),
        "max_length": fields["max_position_embeddings"],
        "segments": fields.get("type_vocab_size", 2),
        "masked_head": _BIAS in state,
        "pooler": f"{_BODY}pooler.dense.weight" in state,
        "classes": classes,
    }
    return validate(BERTConfig, data, where="the bert model")


def our_vocabulary(fields: Mapping[str, Any], folder: str | Path) -> Vocabulary:
    """Return the special tokens of the folder's tokenizer, or else those of the tokenizer of Devlin et al."""
    size, side = fields["vocab_size"], read_side(folder)
    if side is not None:
        pad, bos, eos = (
            special_token(folder, side, name, usual)
            for name, usual in (("pad_token", "[PAD]"), ("cls_token", "[CLS]"), ("sep_token", "[SEP]"))
        )
    else:
        pad = fields.get("pad_token_id") or 0
        bos, eos = (101, 102) if size > 102 else (1, 2)
        warnings.warn(
            f"{folder} has no {' or '.join(TOKENIZERS)}: assuming that [CLS] is {bos} and [SEP] is {eos}",
            stacklevel=3,
        )
    return validate(
        Vocabulary,
        {"source": size, "target": size, "pad": pad, "bos": bos, "eos": eos},
        where="the bert model's tokenizer",
    )


def their_fields(config: BERTConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the fields of their ``BertConfig`` for the same model."""
    require_norm(config.norm, "post", "bert")
    return {
        "vocab_size": vocabulary.source,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.d_ff,
        "hidden_act": their_activation(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "layer_norm_eps": config.norm_epsilon,
        "pad_token_id": vocabulary.pad,
        "id2label": dict(enumerate(config.classes)) or None,
    }


def export_bert(model: BERT) -> dict[str, Tensor]:
    """Return the state dict of their model with the same heads: the same outputs."""
    config = model.config
    state = export_rows(model, _table(config, _classifier(config, {})))
    copies = _COPIES if config.masked_head else {}
    state |= {copy: state[name] for copy, name in copies.items()}
    if config.masked_head or config.classes:
        return state
    return {name.removeprefix(_BODY): tensor for name, tensor in state.items()}  # of a plain BertModel


def import_bert(model: BERT, state: Mapping[str, Tensor]) -> None:
    """Copy one of their models, of the same sizes and with the same heads, into the model.

    ``state`` is its state dict or the content of ``model.safetensors``.
    """
    left = _named(state)
    left.pop(_COMPUTED, None)
    for copy, name in _COPIES.items():
        if copy in left and not torch.equal(left[copy], left.get(name, left[copy][:0])):
            raise ArtifactError(
                f"{copy} differs from {name}, but the model shares one tensor", "use a plain bert model"
            )
        left.pop(copy, None)
    import_rows(model, _table(model.config, _classifier(model.config, left)), left)


def _named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under today's names, with the prefix that only a plain ``BertModel`` lacks."""
    return {_name(name): tensor for name, tensor in state.items()}


def _name(name: str) -> str:
    for old, new in _OLD.items():
        name = name.replace(old, new)
    return name if name.startswith((_BODY, "cls.", _CLASSIFIER)) else f"{_BODY}{name}"


def _classifier(config: BERTConfig, state: Mapping[str, Tensor]) -> str:
    pre_training = f"{_NEXT}weight" in state or (not state and config.masked_head)
    return _NEXT if pre_training else _CLASSIFIER


def _table(config: BERTConfig, classifier: str) -> Iterator[Row]:
    require_norm(config.norm, "post", "bert")
    yield Row([_TOKENS], ["output.weight"])
    yield Row([f"{_BODY}embeddings.position_embeddings.weight"], ["positions.weight"])
    yield Row([f"{_BODY}embeddings.token_type_embeddings.weight"], ["segments.weight"])
    parts = {"norm.": [f"{_BODY}embeddings.LayerNorm."]}
    for i in range(config.layers):
        for our, theirs in _LAYER.items():
            parts[f"encoder.layers.{i}.{our}"] = [f"{_BODY}encoder.layer.{i}.{their}" for their in theirs]
    if config.masked_head:
        parts["masked_head.dense."] = [f"{_HEAD}transform.dense."]
        parts["masked_head.norm."] = [f"{_HEAD}transform.LayerNorm."]
        yield Row([_BIAS], ["masked_head.bias"])
    if config.pooler:
        parts["pooler.dense."] = [f"{_BODY}pooler.dense."]
    if config.classes:
        parts["classifier."] = [classifier]
    for our, theirs in parts.items():
        for kind in ("weight", "bias"):
            yield Row([f"{their}{kind}" for their in theirs], [f"{our}{kind}"])
