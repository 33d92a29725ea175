"""Read folders that ``save_pretrained`` of Hugging Face transformers wrote, with their tokenizers."""

from collections.abc import Callable
from pathlib import Path

from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError
from transduce.interop.bert import load_bert
from transduce.interop.gpt2 import load_gpt2
from transduce.interop.hugging_face import TOKENIZERS, read_fields, read_side
from transduce.interop.hugging_face_seq2seq import read_seq2seq
from transduce.interop.hugging_face_seq2seq_config import KINDS
from transduce.interop.hugging_face_weights import CONFIG
from transduce.interop.imported import Format, Imported
from transduce.interop.llama import load_llama
from transduce.interop.prompt_tokens import declare
from transduce.interop.roberta import load_roberta
from transduce.interop.vit import load_vit
from transduce.models.protocol import Model

_STACKS: dict[str, Callable[[Path], Model]] = {
    "bert": load_bert,
    "gpt2": load_gpt2,
    "llama": load_llama,
    "mistral": load_llama,
    "qwen2": load_llama,
    "roberta": load_roberta,
    "xlm-roberta": load_roberta,
    "vit": load_vit,
}
_SEQ2SEQ = tuple(kind.name for kind in KINDS)
_NOT_T5 = "T5 has relative position biases, unscaled attention and other norms"
_REASONS = dict.fromkeys(("t5", "mt5", "umt5", "longt5"), _NOT_T5)


def recognises(path: Path) -> bool:
    """Return whether this is a folder with a ``config.json`` that names a type of model."""
    try:
        return (path / CONFIG).is_file() and bool({"model_type", "transduce"} & set(read_fields(path)))
    except ArtifactError:
        return False


def read_folder(folder: Path) -> Imported:
    """Read a model that ``save_pretrained`` wrote."""
    fields = read_fields(folder)
    if "transduce" in fields:
        raise ArtifactError(f"{folder} is already a model folder of transduce", "use it without importing it")
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in (*_STACKS, *_SEQ2SEQ):
        reason = f" ({_REASONS[kind]})" if kind in _REASONS else ""
        raise ArtifactError(
            f"{folder} holds a model of type {kind!r}, which cannot be imported{reason}",
            f"give a model of one of the types {', '.join((*_STACKS, *_SEQ2SEQ))}",
        )
    try:
        return read_seq2seq(folder) if kind in _SEQ2SEQ else _read_stack(folder, kind)
    except ArtifactError as error:
        if str(folder) in error.problem:
            raise
        raise ArtifactError(f"{folder}: {error.problem}", error.remedy) from error
    except KeyError as error:
        raise ArtifactError(f"{folder / CONFIG} has no {error}", "copy the folder again") from error
    except TypeError as error:
        raise ArtifactError(
            f"{folder / CONFIG} has a field of the wrong type: {error}", "copy the folder again"
        ) from error


def _read_stack(folder: Path, kind: str) -> Imported:
    """Read a model that consists of one stack."""
    model = _STACKS[kind](folder)
    tokenizer = None if model.vocabulary is None else _tokenizer(folder, model)
    return Imported(model, tokenizer, library="transformers", folder=folder)


def _tokenizer(folder: Path, model: Model) -> TokenizerPair:
    side = read_side(folder)
    if side is None:
        raise ArtifactError(
            f"{folder} has no {' or '.join(TOKENIZERS)}",
            "write one with transformers: AutoTokenizer.from_pretrained(…).save_pretrained(…)",
        )
    return TokenizerPair(side, side, special=declare(folder, side, model))


FORMAT = Format("huggingface", "a folder of Hugging Face transformers", recognises, read_folder)
