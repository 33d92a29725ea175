"""Read folders of encoder-decoder models of Hugging Face transformers, with their tokenizers."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transduce.config import Vocabulary
from transduce.errors import ArtifactError, DependencyError, TransduceError
from transduce.files import user_path
from transduce.interop.foreign_languages import Languages, languages_of_name, told_languages
from transduce.interop.hugging_face import read_fields, read_object
from transduce.interop.hugging_face_peer import outputs_of_lines
from transduce.interop.hugging_face_seq2seq_config import our_config, our_vocabulary
from transduce.interop.hugging_face_seq2seq_weights import (
    BIAS,
    import_seq2seq,
    prepared,
    require_sizes,
    sharing,
)
from transduce.interop.hugging_face_tokens import SETTINGS, read_pair
from transduce.interop.hugging_face_weights import read_weights
from transduce.interop.imported import Imported
from transduce.models.build import build
from transduce.models.transformer import Transformer

GENERATION = "generation_config.json"
# Fields of their search → our options
_SEARCH = {
    "num_beams": "--beam {}",
    "length_penalty": "--penalty plain --length-penalty {}",
    "no_repeat_ngram_size": "--no-repeat-ngram {}",
}


def load_seq2seq(folder: str | Path) -> Transformer:
    """Load the model of a folder with ``config.json`` and weights, in evaluation mode."""
    folder = user_path(folder)
    fields = read_fields(folder)
    return _load(folder, fields, our_vocabulary(fields, read_object(folder / GENERATION)))


def read_seq2seq(folder: Path) -> Imported:
    """Read the model and the tokenizer of a folder."""
    fields, generation = read_fields(folder), read_object(folder / GENERATION)
    vocabulary = our_vocabulary(fields, generation)
    model = _load(folder, fields, vocabulary)  # first, because it proves the size of the vocabulary
    tokenizer = read_pair(folder, fields, generation, vocabulary)
    return Imported(
        model,
        tokenizer,
        tuple(_search_notes(fields, generation)),
        _languages(folder, fields),
        library="transformers",
        translate=partial(_translate, folder),
    )


def _languages(folder: Path, fields: Mapping[str, Any]) -> Languages:
    """Return the languages that the tokenizer's settings tell, or the name of the model or of its folder."""
    settings = read_object(folder / SETTINGS)
    found = told_languages(settings.get("source_lang"), settings.get("target_lang"))
    cached = folder.parent.parent.name if folder.parent.name == "snapshots" else None  # by huggingface_hub
    for name in (fields.get("_name_or_path"), folder.name, cached):
        found = languages_of_name(name) if found == (None, None) else found
    return found


def _translate(folder: Path, lines: list[str]) -> list[str] | None:
    """Translate greedily with ``transformers``, if it is installed."""
    try:
        return [output.text for output in outputs_of_lines(folder, lines)]
    except (DependencyError, ImportError):
        return None
    except (TransduceError, OSError, ValueError, KeyError) as error:
        reason = error.problem if isinstance(error, TransduceError) else str(error).partition("\n")[0]
        raise ArtifactError(f"it cannot load the model: {reason}", "install a newer transformers") from error


def _load(folder: Path, fields: Mapping[str, Any], vocabulary: Vocabulary) -> Transformer:
    state = prepared(read_weights(folder))
    config = our_config(
        fields,
        share=sharing(state, tied=fields.get("tie_word_embeddings", True) is not False),
        output_bias=BIAS in state and bool(state[BIAS].any()),
    )
    require_sizes(state, vocabulary, config.d_model)
    model: Transformer = build(config, vocabulary)
    import_seq2seq(model, state)
    return model.eval()


def _search_notes(fields: Mapping[str, Any], generation: Mapping[str, Any]) -> list[str]:
    """Return which options search as the folder's own settings do."""
    found = {**fields, **generation}
    options = [
        option.format(found[name])
        for name, option in _SEARCH.items()
        if isinstance(found.get(name), int | float) and not isinstance(found[name], bool)
    ]
    return [f"the model's own search settings: {' '.join(options)}"] if options else []
