"""Convert a folder of Hugging Face transformers, with its tokenizer, into a model folder."""

from collections.abc import Callable
from pathlib import Path

from transduce import artifact
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError
from transduce.files import user_path
from transduce.interop.bert import load_bert
from transduce.interop.gpt2 import load_gpt2
from transduce.interop.hugging_face import TOKENIZERS, read_fields, read_side
from transduce.models.bert import BERT
from transduce.models.gpt import GPT

_KINDS: dict[str, Callable[[Path], BERT | GPT]] = {"bert": load_bert, "gpt2": load_gpt2}


def import_folder(folder: str | Path, out: str | Path) -> BERT | GPT:
    """Read a GPT-2 or BERT model that ``save_pretrained`` wrote, and write a model folder."""
    folder = user_path(folder)
    fields = read_fields(folder)
    if "transduce" in fields:
        raise ArtifactError(f"{folder} is already a model folder of transduce", "use it without importing it")
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ArtifactError(
            f"{folder} holds a model of type {kind!r}, which cannot be imported",
            f"give a model of type {' or '.join(_KINDS)}",
        )
    tokenizer = _tokenizer(folder)
    try:
        model = _KINDS[kind](folder)
    except KeyError as error:
        raise ArtifactError(f"{folder / 'config.json'} has no {error}", "copy the folder again") from error
    except TypeError as error:
        raise ArtifactError(
            f"{folder / 'config.json'} has a field of the wrong type: {error}", "copy the folder again"
        ) from error
    except ValueError as error:  # missing or unknown tensors
        raise ArtifactError(f"{folder}: {error}", f"use a plain {kind} model") from error
    ours, theirs = model.vocabulary, tokenizer.vocabulary
    if theirs.target > ours.target:
        raise ArtifactError(
            f"the tokenizer in {folder} has {theirs.target} tokens, but the model has {ours.target}",
            "copy the folder again",
        )
    if (ours.pad, ours.bos, ours.eos) != (theirs.pad, theirs.bos, theirs.eos):
        raise ArtifactError(
            f"special tokens (pad, bos, eos) of {folder} are {theirs.pad}, {theirs.bos}, {theirs.eos} in the "
            f"tokenizer, but {ours.pad}, {ours.bos}, {ours.eos} in the model",
            "make config.json and the tokenizer agree",
        )
    artifact.save(model, out, tokenizer)
    return model


def _tokenizer(folder: Path) -> TokenizerPair:
    side = read_side(folder)
    if side is None:
        raise ArtifactError(
            f"{folder} has no {' or '.join(TOKENIZERS)}",
            "write one with transformers: AutoTokenizer.from_pretrained(…).save_pretrained(…)",
        )
    return TokenizerPair(side, side)
