"""The foreign formats, in the order in which they are tried: those with the most specific files first."""

from dataclasses import replace
from pathlib import Path

from transduce.errors import ArtifactError, ConfigError
from transduce.files import user_path
from transduce.interop import (
    ctranslate2_import,
    eole,
    fairseq,
    folders,
    joeynmt,
    marian_import,
    opennmt,
    sentence_transformers,
    sockeye,
    timm,
)
from transduce.interop.file_kinds import kind_of
from transduce.interop.foreign_languages import Languages, with_languages
from transduce.interop.hub import download, looks_like_id
from transduce.interop.imported import Format, Imported

FORMATS: tuple[Format, ...] = (
    ctranslate2_import.FORMAT,
    marian_import.FORMAT,
    sentence_transformers.FORMAT,
    timm.FORMAT,
    folders.FORMAT,
    eole.FORMAT,
    joeynmt.FORMAT,
    sockeye.FORMAT,
    fairseq.FORMAT,
    opennmt.FORMAT,
)


def read_foreign(path: str | Path, name: str | None = None, languages: Languages = (None, None)) -> Imported:
    """Read a model in a foreign format, which is recognised unless its name is given.

    A path that does not exist may be the id of a model on the Hugging Face Hub. ``languages`` are those of
    source and target, where the files do not tell them.
    """
    named = None if name is None else _named(name)
    given, path = path, user_path(path)
    if not path.exists() and looks_like_id(str(given)):
        path = download(str(given))
    if not path.exists():
        raise ArtifactError(f"{path} does not exist", "give a file or folder with a model")
    imported = with_languages((named or find_format(path)).read(path), *languages)
    config = imported.model.config
    if "dropout" in config.model_fields_set:
        return imported
    note = f"the file names no dropout: further training uses {config.dropout:g}, or --set model.dropout=X"
    return replace(imported, notes=(*imported.notes, note))


def find_format(path: Path) -> Format:
    """Return the format of a file or folder; one that holds models in several formats is refused."""
    found = [each for each in FORMATS if each.recognises(path)]
    contained = {each.contains for each in found}
    found = [each for each in found if each.name not in contained]
    if len(found) > 1:
        names = [each.name for each in found]
        raise ArtifactError(
            f"{path} holds models in {len(names)} formats: {', '.join(names)}",
            f"choose one, for example --format {names[0]}",
        )
    if not found:
        raise _unrecognised(path)
    return found[0]


def _unrecognised(path: Path) -> ArtifactError:
    if path.is_file() and (kind := kind_of(path)):
        return ArtifactError(f"{path} is {kind.name}, not a model", kind.remedy)
    if path.is_dir() and not any(path.iterdir()):
        return ArtifactError(f"{path} is an empty folder", "give a file or folder with a model")
    names = ", ".join(each.name for each in FORMATS)
    return ArtifactError(
        f"{path} is in no format that is recognised",
        f"name it with --format ({names}), or describe a torch.nn.Transformer of yours with --map",
    )


def _named(name: str) -> Format:
    for each in FORMATS:
        if each.name == name:
            return each
    raise ConfigError(
        f"there is no format {name!r}", f"use one of: {', '.join(each.name for each in FORMATS)}"
    )
