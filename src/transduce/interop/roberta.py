"""Import from the RoBERTa and XLM-RoBERTa models of Hugging Face transformers.

They are BERT under other names. Their positions begin after that of the padding token, in rows that nothing
else reads; ours begin with 0.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.config import Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop import bert
from transduce.interop.hugging_face import read_fields, read_saved, read_side, special_token
from transduce.models.bert import BERT
from transduce.models.build import build

KINDS = ("roberta", "xlm-roberta")
# Beginnings of their names → of BERT's
_NAMES = {
    "roberta.": "bert.",
    "lm_head.dense.": "cls.predictions.transform.dense.",
    "lm_head.layer_norm.": "cls.predictions.transform.LayerNorm.",
    "lm_head.": "cls.predictions.",
    "classifier.dense.": "bert.pooler.dense.",
    "classifier.out_proj.": "classifier.",
}
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_SPECIAL = {"pad": "<pad>", "cls": "<s>", "sep": "</s>"}


def load_roberta(folder: str | Path) -> BERT:
    """Load the model of a folder with ``config.json`` and ``model.safetensors``, in evaluation mode."""
    kind = str(read_fields(Path(folder)).get("model_type"))
    if kind not in KINDS:
        raise ConfigError(f"{folder} holds a {kind} model", f"give one of: {', '.join(KINDS)}")
    fields, state = read_saved(folder, kind)
    first = fields.get("pad_token_id", 1) + 1
    named = as_bert(state, first)
    config = bert.our_config({**fields, "max_position_embeddings": len(named[_POSITIONS])}, named)
    model = build(config, _vocabulary(fields, folder))
    bert.import_bert(model, named)
    return model.eval()


def as_bert(state: Mapping[str, Tensor], first: int) -> dict[str, Tensor]:
    """Return the tensors under BERT's names, and positions without those before the ``first`` one."""
    named = {_name(name): tensor for name, tensor in state.items()}
    positions = named.get(_POSITIONS)
    if positions is None or positions.dim() != 2 or not 0 < first < len(positions):
        raise ArtifactError(f"there are no positions from {first} on", "give the complete weights of a model")
    named[_POSITIONS] = positions[first:]
    return named


def _name(name: str) -> str:
    for theirs, berts in _NAMES.items():
        if name.startswith(theirs):
            return berts + name.removeprefix(theirs)
    return f"bert.{name}"  # of a plain RobertaModel


def _vocabulary(fields: Mapping[str, Any], folder: str | Path) -> Vocabulary:
    side = read_side(folder)
    if side is None:
        pad, bos, eos = (fields.get(f"{name}_token_id") for name in ("pad", "bos", "eos"))
    else:
        pad, bos, eos = (
            special_token(folder, side, f"{name}_token", text) for name, text in _SPECIAL.items()
        )
    size = fields["vocab_size"]
    data = {"source": size, "target": size, "pad": pad, "bos": bos, "eos": eos}
    return validate(Vocabulary, data, where=f"the special tokens in {folder}")
