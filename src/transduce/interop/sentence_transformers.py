"""Read folders of the library sentence-transformers: a BERT model, and how a text becomes one vector."""

from pathlib import Path
from typing import Any

from transduce.config import BERTConfig, validate
from transduce.errors import ArtifactError
from transduce.files import read_json
from transduce.interop import folders
from transduce.interop.hugging_face import read_object
from transduce.interop.imported import Format, Imported
from transduce.models.bert import BERT

MODULES, SENTENCES, TOKENIZER_CONFIG = "modules.json", "sentence_bert_config.json", "tokenizer_config.json"
CHAIN = ("Transformer", "Pooling", "Normalize")
_OLD_MODE = "pooling_mode_"  # of one field per mode, in older files
_MODES = {
    "mean": "mean",
    "mean_tokens": "mean",
    "cls": "cls",
    "cls_token": "cls",
    "max": "max",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
}


def recognises(path: Path) -> bool:
    """Return whether this is a folder with a ``modules.json``."""
    return (path / MODULES).is_file()


def read_sentence_transformer(folder: Path) -> Imported:
    """Read the model, and keep its pooling, its maximum length and its normalisation in the configuration."""
    paths = _modules(folder)
    imported = folders.read_folder(folder / paths[0])
    model = imported.model
    if not isinstance(model, BERT):
        raise ArtifactError(f"{folder} holds a {model.config.family} model", "give a BERT or RoBERTa model")
    _require_plain(folder, paths[0])
    changes = {
        "pooling": _pooling(folder / paths[1] / "config.json"),
        "normalize": len(paths) == len(CHAIN),
        "embedding_length": _longest(folder / paths[0], model.config.max_length),
    }
    model.config = validate(BERTConfig, {**model.config.model_dump(), **changes}, where=str(folder))
    return imported


def _modules(folder: Path) -> list[str]:
    """Return the subfolders of the modules, which must be those of `CHAIN`; the last one may be missing."""
    modules = read_json(folder / MODULES, remedy="copy the folder again")
    try:
        found = [(str(module["type"]).split(".")[-1], str(module["path"])) for module in modules]
    except (TypeError, KeyError) as error:
        raise ArtifactError(f"{folder / MODULES} is damaged: {error!r}", "copy the folder again") from error
    kinds, paths = [kind for kind, _ in found], [path for _, path in found]
    if kinds not in (list(CHAIN), list(CHAIN[:-1])):
        raise ArtifactError(
            f"{folder / MODULES} lists {', '.join(kinds) or 'nothing'}, which cannot be imported",
            f"give a model of {', '.join(CHAIN)}, the last one optional",
        )
    if any(Path(path).name != path for path in paths if path):
        raise ArtifactError(f"{folder / MODULES} names a path outside of the folder", "copy the folder again")
    return paths


def _require_plain(folder: Path, transformer: str) -> None:
    """Refuse texts that are changed before they are encoded."""
    if read_object(folder / transformer / SENTENCES).get("do_lower_case"):
        raise ArtifactError(
            f"{SENTENCES} of {folder} has do_lower_case, which is not supported",
            "set it to false if the tokenizer lower-cases, too",
        )
    if read_object(folder / "config_sentence_transformers.json").get("default_prompt_name"):
        raise ArtifactError(
            f"{folder} puts a prompt in front of every text", "write the prompt into your texts and remove it"
        )


def _pooling(path: Path) -> str:
    fields = read_object(path)
    chosen: Any = fields.get("pooling_mode")
    if chosen is None:
        chosen = [
            name.removeprefix(_OLD_MODE) for name, on in fields.items() if on is True and _OLD_MODE in name
        ]
    modes = chosen if isinstance(chosen, list) else [chosen]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise ArtifactError(
            f"{path} has the pooling {' and '.join(map(str, modes)) or 'nothing'}, which is not supported",
            "give a model with mean, cls, max or mean_sqrt_len_tokens",
        )
    return _MODES[modes[0]]


def _longest(folder: Path, limit: int) -> int:
    """Return the length to which their texts are cut, in tokens; at most the model's own limit."""
    for file, name in ((SENTENCES, "max_seq_length"), (TOKENIZER_CONFIG, "model_max_length")):
        value = read_object(folder / file).get(name)
        if isinstance(value, int | float):
            return int(value) if value < limit else limit
    return limit


FORMAT = Format(
    "sentence-transformers",
    "a folder of sentence-transformers",
    recognises,
    read_sentence_transformer,
    contains="huggingface",
)
